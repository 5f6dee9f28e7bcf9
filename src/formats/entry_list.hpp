// The entries of another tool's container, as its parser finds them: names and shapes are kept here, and become views
// when all are there, because what they lie in moves while it grows.
//
// Bounds are the parser's to check; `finish` refuses two entries of one name, and `reject_overlaps` two of one byte.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "onecopy/base/bytes.hpp"
#include "onecopy/formats/index.hpp"

namespace onecopy {

struct ElementType {
  DType dtype = DType::u8;
  std::string_view raw_type;  // a literal, or what `keep` gave
};

class EntryList {
 public:
  void add(std::string name, ElementType type, std::span<const std::uint64_t> shape, ByteRange data,
           std::span<const std::uint64_t> strides = {});
  void add_bytes(std::string name, ByteRange data);  // u8, one axis

  // A text that lives as long as the index will.
  std::string_view keep(std::string text);

  // Overlaps would let a small file claim huge memory.
  void reject_overlaps() const;

  // `data_offset`: where the data section begins; empty entries are moved to there.
  Index finish(std::string_view container, std::map<std::string, std::string, std::less<>> metadata,
               std::uint64_t data_offset) &&;

  // Where the first entry that is not empty begins; `otherwise` when there is none.
  std::uint64_t first_byte(std::uint64_t otherwise) const noexcept;

 private:
  struct Axes {
    std::size_t shape = 0;
    std::size_t strides = 0;
  };

  Index::Parts parts_;
  std::vector<Axes> axes_;  // of each entry: how many numbers of parts_.dimensions
};

// Two of the ranges that share a byte, by their numbers; an empty range shares none.
std::optional<std::pair<std::size_t, std::size_t>> overlap_in(std::span<const ByteRange> ranges);

}  // namespace onecopy
