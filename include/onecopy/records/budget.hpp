// What the values of a file may cost. A file of a few hundred bytes may say that it holds 2^40 values, and many places
// of it may lead to the same bytes. No value of a file that was written by onecopy needs more than its bits, once each.
#pragma once

#include <cstdint>

#include "onecopy/records/node.hpp"
#include "onecopy/records/take.hpp"

namespace onecopy::records {

struct Cost {
  std::uint64_t bits = 0;   // that a value has in the file: offsets, numbers, tags, validity
  std::uint64_t units = 0;  // where that is none: what it takes in memory, in words
};

// Of one value of a node, by the schema: without its text, and without the items of lists.
Cost cost_of(const Node& node) noexcept;

class Budget {
 public:
  // For what is made of a file of so many bytes, each of them so many times.
  explicit Budget(std::uint64_t file_bytes, std::uint64_t times = 1) noexcept;

  bool covers(const Cost& cost, std::uint64_t count) const noexcept;

  // Takes `count` values of that cost off. Throws FormatError, with the path of the node.
  void charge(const Cost& cost, std::uint64_t count, const Node& node);
  void charge_bytes(std::uint64_t bytes, const Node& node) { charge({8, 0}, bytes, node); }

 private:
  std::uint64_t file_bytes_;
  std::uint64_t bits_left_;
  std::uint64_t units_left_;
};

// For `total` items of the values at some places of text, bytes, list, tuple, map or array, before memory is asked for:
// no file has more than it has bits for, but for places that are asked for repeatedly. Throws FormatError.
void expect_paid(const Node& node, Places places, std::uint64_t total, std::uint64_t file_bytes);

}  // namespace onecopy::records
