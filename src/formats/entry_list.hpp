// The arrays of another tool's container, as its parser finds them. Names and shapes are kept here, and become views of
// the Index at the end.
//
// The parser checks bounds; `finish` refuses entries with equal names, and `reject_overlaps` entries that overlap.
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

inline constexpr std::size_t most_axes = 64;  // numpy and torch have no more

struct FoundArray {
  std::string name;
  DType dtype = DType::u8;
  std::string_view raw_type;  // what DType does not have: a literal, or what `keep` returned; else empty
  std::vector<std::uint64_t> shape;
  ByteRange data;                      // from the start of the file
  std::vector<std::uint64_t> strides;  // in elements; empty: the last axis runs fastest
};

class EntryList {
 public:
  void add(FoundArray array);
  void add_bytes(std::string name, ByteRange data);  // u8, one axis

  // Returns the text, which then lives as long as the index.
  std::string_view keep(std::string text);

  bool empty() const noexcept { return parts_.entries.empty(); }

  // Overlaps would let a small file declare huge arrays.
  void reject_overlaps() const;

  // `data_offset`: where the data section begins; empty entries are moved to there.
  Index finish(std::string_view container, std::map<std::string, std::string, std::less<>> metadata,
               std::uint64_t data_offset) &&;
  // The data section begins where the first entry that is not empty does; at `otherwise` if there is none.
  Index finish_at_first(std::string_view container, std::map<std::string, std::string, std::less<>> metadata,
                        std::uint64_t otherwise) &&;

 private:
  struct Axes {
    std::size_t shape = 0;
    std::size_t strides = 0;
  };

  Index::Parts parts_;
  std::vector<Axes> axes_;  // of each entry: how many numbers of parts_.dimensions
};

// Names that a file may have more than once: later ones get a number, "~2", "~3".
class DistinctNames {
 public:
  bool add(const std::string& name) { return numbers_.emplace(name, 1).second; }  // false: it is there already
  std::string add_numbered(const std::string& name);

 private:
  std::map<std::string, unsigned> numbers_;  // the last number that was given to a name
};

// Whether these strides are those of a shape whose last axis runs fastest. Axes of one element do not count, and no
// axis does where there is no element. The shape has a checked_size, and as many extents as there are strides.
bool last_runs_fastest(std::span<const std::uint64_t> shape, std::span<const std::uint64_t> strides) noexcept;

// Strides of a shape whose first axis runs fastest; empty if the last one does, too. The shape has a checked_size.
std::vector<std::uint64_t> first_runs_fastest(std::span<const std::uint64_t> shape);

// Two of the ranges that share a byte, by their numbers; an empty range shares none.
std::optional<std::pair<std::size_t, std::size_t>> overlap_in(std::span<const ByteRange> ranges);

}  // namespace onecopy
