// A structure with one field of every form: what fuzz_structs and tests open, and seeds_structs writes.
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

// Every byte that a program could reach.
inline std::uint64_t touch(const Sub& sub) {
  std::uint64_t sum = sub.circular ? 1U : 0U;
  for (const char c : sub.name) sum += static_cast<unsigned char>(c);
  for (const auto& node : sub.nodes) sum += node.key + node.low + node.high;
  return sum + sub.parent.value_or(0);
}

inline std::uint64_t touch(const Index& index) {
  std::uint64_t sum = index.seed + index.shape[0] + (index.sorted ? 1U : 0U) + (index.added > 0 ? 1U : 0U);
  for (const auto word : index.words) sum += word;
  for (const auto& sub : index.subs) sum += touch(sub);
  for (const auto& row : index.jagged)
    for (const auto byte : row) sum += byte;
  if (index.extra) sum += touch(*index.extra);
  for (const auto& part : index.pair)
    for (const auto number : part) sum += number;
  return sum;
}

}  // namespace fuzz

template <>
inline constexpr onecopy::Versions onecopy::versions_of<fuzz::Index> = {.current = 2, .oldest = 1};
