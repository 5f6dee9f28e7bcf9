// What an Index of another tool's file promises, held against arithmetic with twice the bits, for fuzz targets.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "formats/wire/json.hpp"
#include "onecopy/formats/index.hpp"

namespace foreign {

__extension__ using Wide = unsigned __int128;

inline void expect(bool truth) {
  if (!truth) std::abort();
}

inline std::uint64_t touch(std::string_view text) {
  expect(onecopy::json::is_utf8(text));
  std::uint64_t sum = text.size();
  for (const char c : text) sum += static_cast<unsigned char>(c);
  return sum;
}

// Of typed entries: the shape asks for these bytes, and no step of the strides leads out of them.
inline void check_shape(const onecopy::Entry& entry) {
  Wide count = 1;
  bool is_empty = false;
  for (const std::uint64_t extent : entry.shape) {
    is_empty = is_empty || extent == 0;
    if (count <= UINT64_MAX) count *= extent;  // beyond that nothing can fit any more
  }
  if (is_empty) count = 0;
  if (!is_empty) expect(count <= UINT64_MAX);
  expect(count * onecopy::bits(entry.dtype) == Wide{entry.length} * 8);
  if (entry.strides.empty() || is_empty) return;
  expect(entry.strides.size() == entry.shape.size());
  Wide last = 0;
  for (std::size_t i = 0; i < entry.shape.size(); ++i) last += Wide{entry.strides[i]} * (entry.shape[i] - 1);
  expect(last + 1 == count);  // every element once: the last one is the furthest
}

inline std::uint64_t touch(const onecopy::Entry& entry, onecopy::Bytes file) {
  std::uint64_t sum = touch(entry.name) + touch(entry.raw_type);
  expect(Wide{entry.offset} + entry.length <= file.size());
  if (entry.raw_type.empty()) check_shape(entry);
  for (const std::byte byte : file.subspan(entry.offset, entry.length)) sum += std::to_integer<std::uint64_t>(byte);
  return sum;
}

inline std::uint64_t touch(const onecopy::Index& index, onecopy::Bytes file) {
  expect(index.kind() == onecopy::Kind::foreign && index.data_offset() <= file.size());
  std::uint64_t sum = touch(index.container());
  for (const auto& entry : index.entries()) {
    sum += touch(entry, file);
    expect(index.find(entry.name) == &entry);
    expect(entry.offset >= index.data_offset());
  }
  for (const auto& [key, value] : index.metadata()) sum += touch(key) + touch(value);
  return sum;
}

}  // namespace foreign
