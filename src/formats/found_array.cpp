#include "formats/found_array.hpp"

#include <algorithm>
#include <utility>

namespace onecopy {

std::optional<std::uint64_t> size_in_bytes(std::span<const std::uint64_t> shape, std::uint64_t item) noexcept {
  std::uint64_t product = std::max<std::uint64_t>(item, 1);
  bool is_empty = item == 0;
  for (const std::uint64_t extent : shape) {
    is_empty = is_empty || extent == 0;
    if (extent != 0 && __builtin_mul_overflow(product, extent, &product)) return std::nullopt;
  }
  if (product > INT64_MAX) return std::nullopt;
  return is_empty ? 0 : product;
}

bool last_runs_fastest(std::span<const std::uint64_t> shape, std::span<const std::uint64_t> strides) noexcept {
  if (std::ranges::find(shape, std::uint64_t{0}) != shape.end()) return true;
  std::uint64_t expected = 1;
  for (std::size_t axis = shape.size(); axis > 0; --axis) {
    const std::uint64_t extent = shape[axis - 1];
    if (extent != 1 && strides[axis - 1] != expected) return false;
    expected *= extent;
  }
  return true;
}

std::vector<std::uint64_t> first_runs_fastest(std::span<const std::uint64_t> shape) {
  if (std::ranges::find(shape, std::uint64_t{0}) != shape.end()) return {};
  std::vector<std::uint64_t> strides;
  strides.reserve(shape.size());
  std::uint64_t stride = 1;
  for (const std::uint64_t extent : shape) {
    strides.push_back(stride);
    stride *= extent;
  }
  return last_runs_fastest(shape, strides) ? std::vector<std::uint64_t>{} : strides;
}

Index index_of(std::vector<FoundArray> arrays, std::map<std::string, std::string, std::less<>> metadata,
               std::string_view container) {
  Index::Parts parts;
  parts.container = container;
  parts.kind = Kind::foreign;
  parts.metadata = std::move(metadata);
  std::size_t numbers = 0;
  for (const FoundArray& array : arrays) numbers += array.shape.size() + array.strides.size();
  parts.dimensions.reserve(numbers);  // it does not move while entries look into it
  parts.entries.reserve(arrays.size());
  const auto keep_numbers = [&](const std::vector<std::uint64_t>& some) {
    const auto begin = parts.dimensions.insert(parts.dimensions.end(), some.begin(), some.end());
    return std::span<const std::uint64_t>(begin, parts.dimensions.end());
  };
  const auto keep_text = [&](std::string& text) {
    return text.empty() ? std::string_view() : std::string_view(parts.unescaped.emplace_back(std::move(text)));
  };
  for (FoundArray& array : arrays) {
    Entry entry;
    entry.name = keep_text(array.name);
    entry.dtype = array.dtype;
    entry.shape = keep_numbers(array.shape);
    entry.strides = keep_numbers(array.strides);
    entry.offset = array.data.offset;
    entry.length = array.data.length;
    entry.raw_type = keep_text(array.raw_type);
    parts.entries.push_back(entry);
  }
  if (!parts.entries.empty()) parts.data_offset = std::ranges::min(parts.entries, {}, &Entry::offset).offset;
  return Index(std::move(parts));
}

}  // namespace onecopy
