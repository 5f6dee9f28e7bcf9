// Reads all that an Index of another tool's file gives away, and judges its arrays with arithmetic of twice the bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "formats/wire/json.hpp"
#include "onecopy/formats/index.hpp"

namespace fuzz {

__extension__ using Wide = unsigned __int128;

inline void expect(bool truth) {
  if (!truth) std::abort();
}

inline std::uint64_t touch(std::string_view text) {
  std::uint64_t sum = text.size();
  for (const char c : text) sum += static_cast<unsigned char>(c);
  expect(onecopy::json::is_utf8(text));
  return sum;
}

// Elements from the first to the last that the shape reaches; at most so many that nothing wraps. 0: there is none.
inline Wide reach(const onecopy::Entry& entry) {
  Wide last = 0;
  Wide packed = 1;
  for (std::size_t axis = entry.shape.size(); axis > 0; --axis) {
    const std::uint64_t extent = entry.shape[axis - 1];
    if (extent == 0) return 0;
    expect(packed <= INT64_MAX);
    last += (Wide{extent} - 1) * (entry.strides.empty() ? packed : Wide{entry.strides[axis - 1]});
    packed *= extent;
    expect(last <= INT64_MAX);
  }
  expect(packed <= INT64_MAX);  // as many as numpy and torch can count
  return last + 1;
}

inline std::uint64_t touch(const onecopy::Entry& entry, onecopy::Bytes file) {
  std::uint64_t sum = touch(entry.name) + touch(entry.raw_type) + touch(onecopy::to_string(entry.dtype));
  expect(entry.strides.empty() || entry.strides.size() == entry.shape.size());
  expect(Wide{entry.offset} + entry.length <= file.size());
  const Wide elements = reach(entry);
  if (entry.raw_type.empty())
    expect(elements * onecopy::bits(entry.dtype) == Wide{entry.length} * 8);
  else
    expect(elements == 0 ? entry.length == 0 : entry.length % elements == 0);
  for (const std::byte byte : file.subspan(entry.offset, entry.length)) sum += std::to_integer<std::uint64_t>(byte);
  return sum;
}

inline std::uint64_t touch(const onecopy::Index& index, onecopy::Bytes file) {
  std::uint64_t sum = touch(index.container());
  expect(index.kind() == onecopy::Kind::foreign);
  expect(index.data_offset() <= file.size());
  for (const auto& entry : index.entries()) {
    sum += touch(entry, file);
    expect(index.find(entry.name) == &entry);
    expect(entry.offset >= index.data_offset());
    expect(!index.is_filler(entry));
  }
  for (const auto& [key, value] : index.metadata()) sum += touch(key) + touch(value);
  return sum;
}

}  // namespace fuzz
