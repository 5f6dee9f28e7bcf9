// One .npy file inside another file, or one that is all of it: what npy and npz share.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "formats/found_array.hpp"
#include "onecopy/base/bytes.hpp"

namespace onecopy::npy {

// A type as numpy spells it: "<f4", "|b1", ">i8", "<U5", "<M8[ns]".
struct ItemType {
  std::optional<DType> dtype;  // none: DType has not this one
  std::uint64_t size = 0;      // bytes of an element
  bool is_object = false;      // elements are pointers, and the file holds a pickle
};

// None: no type of numpy, or not one that a file can have.
std::optional<ItemType> parse_type(std::string_view text) noexcept;

struct NpyArray {
  FoundArray array;    // without a name
  std::string reason;  // why its elements cannot be looked at; empty: they can, and the array is whole
};

// Throws FormatError for what is no .npy file; `file` is all of it in `whole`, which offsets count from.
NpyArray read_array(Bytes whole, ByteRange file);

}  // namespace onecopy::npy
