// A .npy file, as a whole file or inside another one: the part that npy and npz share.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "formats/entry_list.hpp"
#include "onecopy/base/bytes.hpp"

namespace onecopy::npy {

// A type as numpy spells it: "<f4", "|b1", ">i8", "<U5", "<M8[ns]".
struct ItemType {
  std::optional<DType> dtype;  // none: DType does not have it
  std::uint64_t size = 0;      // bytes of an element
  bool is_object = false;      // elements are pointers, and the file holds a pickle
};

// None: not a type of numpy, or one that no file can have.
std::optional<ItemType> parse_type(std::string_view text) noexcept;

// Adds the array of the .npy file that is the range `file` of `whole`; offsets count from the start of `whole`. Returns
// why its elements cannot be viewed; empty: it was added. Throws FormatError for anything but a .npy file.
std::string add_array(Bytes whole, ByteRange file, std::string_view name, EntryList& entries);

}  // namespace onecopy::npy
