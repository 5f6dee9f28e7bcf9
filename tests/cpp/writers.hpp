// What tests do with every kind of FileWriter.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <initializer_list>
#include <random>
#include <vector>

#include "onecopy/base/error.hpp"
#include "onecopy/files/memory_file_writer.hpp"
#include "scratch_folder.hpp"

namespace onecopy::testing {

inline Mapping memory_file(Bytes content) {
  MemoryFileWriter writer("content", content.size());
  writer.write(content);
  writer.commit();
  return writer.open();
}

inline void write_in_pieces(FileWriter& writer, Bytes content) {
  std::mt19937_64 random(1);
  for (std::size_t at = 0; at < content.size();) {
    const std::size_t largest = random() % 3 == 0 ? std::size_t{30} << 20U : 5000;
    const std::size_t size = std::min<std::size_t>(random() % largest, content.size() - at);
    writer.write(content.subspan(at, size));
    at += size;
    CHECK(writer.written() == at);
  }
}

// Overwrites 200 bytes at these places of what was written, and in `content`; beyond its end that is refused.
inline void patch(FileWriter& writer, std::vector<std::byte>& content, std::initializer_list<std::size_t> places) {
  const auto bytes = random_bytes(200, 2);
  for (const std::size_t at : places) {
    writer.overwrite(at, bytes);
    std::ranges::copy(bytes, content.begin() + static_cast<std::ptrdiff_t>(at));
  }
  CHECK_THROWS_AS(writer.overwrite(content.size() - 10, bytes), OsError);
}

}  // namespace onecopy::testing
