// A limit on what the values of a file may cost. A file of a few hundred bytes may declare 2^40 values, and many of its
// parts may refer to the same bytes. Values of a file written by onecopy never need more than all bits of the file,
// once each. Threads: one at a time.
#pragma once

#include <cstdint>

#include "onecopy/records/node.hpp"
#include "onecopy/records/take.hpp"

namespace onecopy::records {

struct Cost {
  std::uint64_t bits = 0;   // of one value in the file: offsets, numbers, tags, validity
  std::uint64_t units = 0;  // of one value without bits in the file: its memory, in words
};

// The cost of one value of a node, by the schema: without its text, and without the items of lists.
Cost cost_of(const Node& node) noexcept;

class Budget {
 public:
  // For decoding `bytes` of a file, each byte up to `times` times.
  explicit Budget(std::uint64_t file_bytes, std::uint64_t times = 1) noexcept;

  bool covers(const Cost& cost, std::uint64_t count) const noexcept;

  // Subtracts the cost of `count` values. Throws FormatError, with the path of the node.
  void charge(const Cost& cost, std::uint64_t count, const Node& node);
  void charge_bytes(std::uint64_t bytes, const Node& node) { charge({8, 0}, bytes, node); }

 private:
  std::uint64_t file_bytes_;
  std::uint64_t bits_left_;
  std::uint64_t units_left_;
};

// For `total` items of the values at some places of text, bytes, list, tuple, map or array, before memory is allocated:
// a file has bits for each item, unless a place is requested repeatedly. Throws FormatError.
void expect_paid(const Node& node, Places places, std::uint64_t total, std::uint64_t file_bytes);

}  // namespace onecopy::records
