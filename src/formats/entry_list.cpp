#include "formats/entry_list.hpp"

#include <algorithm>

#include "formats/wire/json.hpp"
#include "onecopy/base/error.hpp"

namespace onecopy {

void EntryList::add(FoundArray array) {
  Entry entry;
  entry.name = keep(std::move(array.name));
  entry.dtype = array.dtype;
  entry.raw_type = array.raw_type;
  entry.offset = array.data.offset;
  entry.length = array.data.length;
  parts_.dimensions.insert(parts_.dimensions.end(), array.shape.begin(), array.shape.end());
  parts_.dimensions.insert(parts_.dimensions.end(), array.strides.begin(), array.strides.end());
  axes_.push_back({array.shape.size(), array.strides.size()});
  parts_.entries.push_back(entry);
}

void EntryList::add_bytes(std::string name, ByteRange data) {
  add({.name = std::move(name), .shape = {data.length}, .data = data});
}

std::string_view EntryList::keep(std::string text) { return parts_.unescaped.emplace_back(std::move(text)); }

void EntryList::reject_overlaps() const {
  std::vector<ByteRange> ranges(parts_.entries.size());
  std::ranges::transform(parts_.entries, ranges.begin(), &Entry::range);
  if (const auto pair = overlap_in(ranges)) {
    const Entry& first = parts_.entries[pair->first];
    const Entry& second = parts_.entries[pair->second];
    throw FormatError(FormatError::inconsistent,
                      concat(json::describe(second.name), " begins at byte ", second.offset, " of the file, inside ",
                             json::describe(first.name), ", which ends at ", first.offset + first.length),
                      second.offset);
  }
}

Index EntryList::finish(std::string_view container, std::map<std::string, std::string, std::less<>> metadata,
                        std::uint64_t data_offset) && {
  parts_.container = container;
  parts_.metadata = std::move(metadata);
  parts_.data_offset = data_offset;
  std::span<const std::uint64_t> numbers(parts_.dimensions);
  for (std::size_t i = 0; i < parts_.entries.size(); ++i) {
    Entry& entry = parts_.entries[i];
    entry.shape = numbers.first(axes_[i].shape);
    numbers = numbers.subspan(axes_[i].shape);
    entry.strides = numbers.first(axes_[i].strides);
    numbers = numbers.subspan(axes_[i].strides);
    if (entry.length == 0) entry.offset = std::max(entry.offset, data_offset);
  }
  return Index(std::move(parts_));
}

Index EntryList::finish_at_first(std::string_view container, std::map<std::string, std::string, std::less<>> metadata,
                                 std::uint64_t otherwise) && {
  std::optional<std::uint64_t> first;
  for (const Entry& entry : parts_.entries)
    if (entry.length != 0) first = std::min(entry.offset, first.value_or(entry.offset));
  return std::move(*this).finish(container, std::move(metadata), first.value_or(otherwise));
}

std::string DistinctNames::add_numbered(const std::string& name) {
  if (add(name)) return name;
  for (;;) {
    auto numbered = concat(name, '~', ++numbers_[name]);
    if (add(numbered)) return numbered;
  }
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

std::optional<std::pair<std::size_t, std::size_t>> overlap_in(std::span<const ByteRange> ranges) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < ranges.size(); ++i)
    if (ranges[i].length != 0) order.push_back(i);
  const auto offset = [&ranges](std::size_t i) { return ranges[i].offset; };
  if (!std::ranges::is_sorted(order, {}, offset)) std::ranges::stable_sort(order, {}, offset);
  for (std::size_t i = 1; i < order.size(); ++i) {
    const ByteRange& before = ranges[order[i - 1]];
    if (ranges[order[i]].offset - before.offset < before.length) return std::pair(order[i - 1], order[i]);
  }
  return std::nullopt;
}

}  // namespace onecopy
