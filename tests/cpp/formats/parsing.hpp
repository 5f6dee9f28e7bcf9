// What tests of parsers share: files as text, and damage that no parser may take for more than a refusal.
#pragma once

#include <doctest/doctest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "onecopy/formats/index.hpp"
#include "refusal.hpp"

namespace onecopy::testing {

inline Bytes bytes_of(std::string_view file) { return std::as_bytes(std::span(file.data(), file.size())); }

inline std::string contents(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  std::string file((std::istreambuf_iterator<char>(stream)), std::istreambuf_iterator<char>());
  REQUIRE(!file.empty());
  return file;
}

inline std::vector<std::uint64_t> shape_of(const Entry& entry) { return {entry.shape.begin(), entry.shape.end()}; }

inline std::string_view data_of(std::string_view file, const Entry* entry) {
  return entry == nullptr ? "no entry" : file.substr(entry->offset, entry->length);
}

inline std::vector<ByteRange> ranges_of(const Index& index) {
  std::vector<ByteRange> ranges;
  for (const Entry& entry : index.entries()) ranges.push_back(entry.range());
  return ranges;
}

// A file that is cut anywhere is refused; one with bits flipped is refused, or what it names lies inside it.
// `parse`: from bytes to the ranges of what was found.
template <class Parse>
void check_damaged(const std::string& good, const Parse& parse) {
  REQUIRE(refusal([&] { return parse(bytes_of(good)); }) == "accepted");
  for (std::size_t size = 0; size < good.size(); ++size)
    CHECK(refusal([&] { return parse(bytes_of(std::string_view(good).substr(0, size))); }) != "accepted");
  std::mt19937_64 random(5);
  for (int round = 0; round < 20'000; ++round) {
    auto bad = good;
    for (std::uint64_t flips = random() % 3 + 1; flips > 0; --flips)
      bad[random() % bad.size()] ^= static_cast<char>(1U << (random() % 8));
    std::vector<ByteRange> found;
    (void)refusal([&] { return found = parse(bytes_of(bad)); });
    for (const ByteRange& range : found) REQUIRE(in_bounds(bad.size(), range.offset, range.length));
  }
}

}  // namespace onecopy::testing
