// The only place where the extents of a shape from a file are multiplied.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace onecopy {

// `unit` times all extents; 0 where an extent is 0. None if the product of `unit` and the extents other than 0 exceeds
// 64 bits or `largest`, even where another extent is 0: numpy refuses such a shape.
constexpr std::optional<std::uint64_t> checked_size(std::span<const std::uint64_t> shape, std::uint64_t unit,
                                                    std::uint64_t largest = UINT64_MAX) noexcept {
  std::uint64_t product = unit == 0 ? 1 : unit;
  bool is_empty = unit == 0;
  for (const std::uint64_t extent : shape) {
    is_empty = is_empty || extent == 0;
    if (extent != 0 && __builtin_mul_overflow(product, extent, &product)) return std::nullopt;
  }
  if (product > largest) return std::nullopt;
  return is_empty ? 0 : product;
}

}  // namespace onecopy
