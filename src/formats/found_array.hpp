// Arrays as the parsers of other tools' files find them, and the Index that they become.
//
// The parsers differ in where they look; what makes a shape, its strides and its bytes agree is the same everywhere and
// stands here: products that fit 63 bits, because numpy and torch count in signed numbers, and strides only
// where they say something.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "onecopy/base/bytes.hpp"
#include "onecopy/base/dtype.hpp"
#include "onecopy/formats/index.hpp"

namespace onecopy {

inline constexpr std::size_t most_axes = 64;  // numpy and torch have no more

struct FoundArray {
  std::string name;
  DType dtype = DType::u8;
  std::string raw_type;  // what DType has not, in the words of the file; else empty
  std::vector<std::uint64_t> shape;
  std::vector<std::uint64_t> strides;  // in elements; empty: the last axis runs fastest
  ByteRange data;                      // from the start of the file
};

// Bytes of the elements of a shape, each of `item` bytes; none where the extents that are not 0 make more than 63 bits
// can say, even where another extent is 0: numpy refuses such a shape.
std::optional<std::uint64_t> size_in_bytes(std::span<const std::uint64_t> shape, std::uint64_t item) noexcept;

// Whether these strides are those of a shape whose last axis runs fastest. Axes of one element are not asked, and
// nothing is where there is no element. The shape has a size_in_bytes, and as many extents as there are strides.
bool last_runs_fastest(std::span<const std::uint64_t> shape, std::span<const std::uint64_t> strides) noexcept;

// Strides of a shape whose first axis runs fastest; empty where it is all the same. The shape has a size_in_bytes.
std::vector<std::uint64_t> first_runs_fastest(std::span<const std::uint64_t> shape);

// The arrays are checked: they lie inside the file. `container` is a literal. Throws FormatError when two have a name.
Index index_of(std::vector<FoundArray> arrays, std::map<std::string, std::string, std::less<>> metadata,
               std::string_view container);

}  // namespace onecopy
