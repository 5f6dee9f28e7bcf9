// What tests of parsers share: files as text, what is found in them, and damage that no parser may take for more than a
// refusal.
#pragma once

#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "onecopy/base/error.hpp"
#include "onecopy/formats/index.hpp"

namespace onecopy::testing {

inline Bytes bytes_of(std::string_view file) { return std::as_bytes(std::span(file.data(), file.size())); }

inline std::string contents(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  std::string file((std::istreambuf_iterator<char>(stream)), std::istreambuf_iterator<char>());
  REQUIRE(!file.empty());
  return file;
}

// `file` with a number at `at`.
template <class Number>
std::string with(std::string file, std::size_t at, Number value) {
  std::memcpy(file.data() + at, &value, sizeof(value));
  return file;
}

template <class Number>
std::string put(Number value) {
  return with(std::string(sizeof(value), '\0'), 0, value);
}

template <class Number>
Number number_in(std::string_view file, std::size_t at) {
  Number value{};
  std::memcpy(&value, file.data() + at, sizeof(value));
  return value;
}

// The kind and the place of the error, and not its words: "truncated at 12", "malformed" where the place is unknown, or
// "accepted".
template <class Call>
std::string refusal(const Call& call) {
  try {
    (void)call();
  } catch (const FormatError& error) {
    const auto offset = error.offset();
    return std::string(to_string(error.kind())) + (offset ? " at " + std::to_string(*offset) : "");
  }
  return "accepted";
}

template <auto parse>
std::string error_in(std::string_view file) {
  return refusal([&] { return parse(bytes_of(file)); });
}

inline std::string_view data_of(std::string_view file, const Entry* entry) {
  return entry == nullptr ? "no entry" : file.substr(entry->offset, entry->length);
}

// The entries in their order, each as "name type[2,3] strides(3,1) = bytes;": strides and bytes where there are any.
inline std::string listed(std::string_view file, const Index& index) {
  std::string all;
  const auto numbers = [&](std::string_view before, std::span<const std::uint64_t> some, std::string_view behind) {
    all += before;
    for (std::size_t i = 0; i < some.size(); ++i) all += (i == 0 ? "" : ",") + std::to_string(some[i]);
    all += behind;
  };
  for (const Entry& entry : index.entries()) {
    all += (all.empty() ? "" : "; ") + std::string(entry.name) + " ";
    all += entry.raw_type.empty() ? to_string(entry.dtype) : entry.raw_type;
    numbers("[", entry.shape, "]");
    if (!entry.strides.empty()) numbers(" strides(", entry.strides, ")");
    if (entry.length != 0) all.append(" = ").append(data_of(file, &entry));
  }
  return all;
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
