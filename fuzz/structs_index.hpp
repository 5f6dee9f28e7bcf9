// A structure with one field of every form: what fuzz_structs opens, and seeds_structs writes.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "onecopy/structs/structs.hpp"

namespace fuzz {

struct Node {
  std::uint32_t key;
  std::uint16_t low;
  std::uint16_t high;
};

struct Sub {
  std::string name;
  onecopy::OwningSpan<Node> nodes;
  std::optional<std::uint16_t> parent;
  bool circular = false;
};

struct Index {
  std::uint32_t seed = 0;
  bool sorted = false;
  std::array<std::uint16_t, 3> shape{};
  onecopy::OwningSpan<std::uint64_t> words;
  onecopy::OwningSpan<Sub> subs;
  std::vector<std::vector<std::uint8_t>> jagged;
  std::optional<Sub> extra;
  std::array<onecopy::OwningSpan<std::uint32_t>, 2> pair;
  double added = 0.5;  // in version 2
};

}  // namespace fuzz

template <>
inline constexpr onecopy::Versions onecopy::versions_of<fuzz::Index> = {.current = 2, .oldest = 1};
