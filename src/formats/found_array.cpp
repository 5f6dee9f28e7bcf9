#include "formats/found_array.hpp"

#include <algorithm>
#include <utility>

#include "formats/checked_size.hpp"
#include "formats/entry_list.hpp"

namespace onecopy {

std::optional<std::uint64_t> size_in_bytes(std::span<const std::uint64_t> shape, std::uint64_t item) noexcept {
  return checked_size(shape, item, INT64_MAX);
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
  EntryList entries;
  for (FoundArray& array : arrays) {
    const auto raw_type = array.raw_type.empty() ? std::string_view() : entries.keep(std::move(array.raw_type));
    entries.add(std::move(array.name), {array.dtype, raw_type}, array.shape, array.data, array.strides);
  }
  const std::uint64_t data_offset = entries.first_byte(0);
  return std::move(entries).finish(container, std::move(metadata), data_offset);
}

}  // namespace onecopy
