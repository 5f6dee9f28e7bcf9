// What numpy and torch wrote opens as they read it: tests/golden/numpy and tests/golden/torch, where expected.txt has a
// line for each array, with its elements.
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "onecopy/base/error.hpp"
#include "onecopy/formats/npy.hpp"
#include "onecopy/formats/npz.hpp"
#include "onecopy/formats/torch_zip.hpp"

namespace onecopy {
namespace {

const std::filesystem::path golden = ONECOPY_GOLDEN;

std::string content(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

Index parse(Bytes file) {
  CHECK(npy::is_npy(file) + npz::is_npz(file) + torch_zip::is_torch_zip(file) == 1);
  if (npy::is_npy(file)) return npy::parse(file);
  return npz::is_npz(file) ? npz::parse(file) : torch_zip::parse(file);
}

std::string numbers(std::span<const std::uint64_t> some) {
  std::string text;
  for (const auto number : some) text += (text.empty() ? "" : ",") + std::to_string(number);
  return text.empty() ? "-" : text;
}

// Elements in C order, each where the strides say.
std::string elements(const Entry& entry, std::string_view file) {
  std::uint64_t count = 1;
  std::vector<std::uint64_t> packed(entry.shape.size());
  for (std::size_t axis = entry.shape.size(); axis > 0; --axis) {
    packed[axis - 1] = count;
    count *= entry.shape[axis - 1];
  }
  const auto strides = entry.strides.empty() ? std::span<const std::uint64_t>(packed) : entry.strides;
  std::uint64_t reached = count == 0 ? 0 : 1;
  for (std::size_t axis = 0; axis < packed.size() && count != 0; ++axis)
    reached += (entry.shape[axis] - 1) * strides[axis];
  const std::uint64_t item = reached == 0 ? 0 : entry.length / reached;
  std::string text;
  for (std::uint64_t i = 0; i < count; ++i) {
    std::uint64_t place = 0;
    for (std::size_t axis = 0; axis < packed.size(); ++axis)
      place += i / packed[axis] % entry.shape[axis] * strides[axis];
    for (const char c : file.substr(entry.offset + place * item, item)) {
      text.push_back("0123456789abcdef"[static_cast<unsigned char>(c) >> 4U]);
      text.push_back("0123456789abcdef"[static_cast<unsigned char>(c) & 15U]);
    }
  }
  return text.empty() ? "-" : text;
}

std::string lines(std::string_view file, const Index& index, std::string_view bytes) {
  std::ostringstream all;
  for (const Entry& entry : index.entries())
    all << file << ' ' << entry.name << ' ' << (entry.raw_type.empty() ? to_string(entry.dtype) : entry.raw_type) << ' '
        << numbers(entry.shape) << ' ' << numbers(entry.strides) << ' ' << elements(entry, bytes) << '\n';
  return all.str();
}

// By file, in the order of the lines.
std::map<std::string, std::string> expected_in(const std::filesystem::path& folder) {
  std::istringstream text(content(folder / "expected.txt"));
  std::map<std::string, std::string> files;
  for (std::string line; std::getline(text, line);) files[line.substr(0, line.find(' '))] += line + '\n';
  return files;
}

void check(const std::filesystem::path& folder) {
  const auto files = expected_in(folder);
  REQUIRE(files.size() > 10);
  for (const auto& [name, expected] : files) {
    CAPTURE(name);
    const auto file = content(folder / name);
    const auto bytes = std::as_bytes(std::span(file.data(), file.size()));
    const auto refused = name + " refused ";
    try {
      const auto index = parse(bytes);
      CHECK(lines(name, index, file) == expected);
    } catch (const FormatError& error) {
      REQUIRE(expected.starts_with(refused));
      const auto why = expected.substr(refused.size(), expected.size() - refused.size() - 1);
      CAPTURE(error.what());
      CHECK(std::string_view(error.what()).find(why) != std::string_view::npos);
    }
  }
}

}  // namespace

TEST_CASE("arrays that numpy wrote are those that numpy reads") {
  check(golden / "numpy");
  const auto file = content(golden / "numpy" / "mixed.npz");
  const auto index = npz::parse(std::as_bytes(std::span(file.data(), file.size())));
  CHECK(index.metadata().at("compressed") == "packed");
  CHECK(index.metadata().at("unsupported") == "objects");
  CHECK(index.metadata().at("others") == "notes.txt");
}

TEST_CASE("tensors that torch wrote are those that torch reads") {
  check(golden / "torch");
  const auto file = content(golden / "torch" / "nested.pt");
  const auto index = torch_zip::parse(std::as_bytes(std::span(file.data(), file.size())));
  CHECK(index.metadata().at("objects") == "argparse.Namespace");
  CHECK(index.metadata().at("format") == "pt");
}

}  // namespace onecopy
