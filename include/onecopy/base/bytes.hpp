// base: types that every other module uses. No operating system, no files, no logging.
//
// `Bytes` is a read-only view of memory that another object owns. `in_bounds` is the only bounds check of the project:
// code with two untrusted numbers never adds them, it calls `in_bounds`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#if defined(__clang__)
#define ONECOPY_LIFETIMEBOUND [[clang::lifetimebound]]
#else
#define ONECOPY_LIFETIMEBOUND
#endif

namespace onecopy {

using Bytes = std::span<const std::byte>;

// True when [offset, offset + length) lies inside [0, size). Correct for all 64-bit numbers: the sum, which could wrap,
// is never computed.
constexpr bool in_bounds(std::uint64_t size, std::uint64_t offset, std::uint64_t length) noexcept {
  return offset <= size && length <= size - offset;
}

// The little-endian number in up to 8 bytes.
constexpr std::uint64_t little_endian(Bytes bytes) noexcept {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) value |= std::to_integer<std::uint64_t>(bytes[i]) << (8 * i);
  return value;
}

// A part of a file or of a mapping, in bytes.
struct ByteRange {
  std::uint64_t offset = 0;
  std::uint64_t length = 0;

  friend bool operator==(const ByteRange&, const ByteRange&) = default;
};

// The parts of a file or of a mapping that a call works on: `everything`, or a list; an empty list means no bytes.
using Ranges = std::optional<std::span<const ByteRange>>;
inline constexpr std::nullopt_t everything = std::nullopt;

}  // namespace onecopy
