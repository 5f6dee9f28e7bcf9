// The layout of a tensor in ExecuTorch's data files: a type of PyTorch, extents, and the order of the axes in memory.
#pragma once

#include <cstdint>
#include <string>

#include "formats/entry_list.hpp"
#include "formats/wire/flatbuffer.hpp"

namespace onecopy::executorch {

// The array of `data`, with its layout. Throws FormatError unless each axis occurs once, and type and shape need all of
// the data; the size of types that PyTorch packs, and of unknown types, is not checked.
FoundArray array_of(const flatbuffer::Table& layout, std::string name, ByteRange data, EntryList& entries);

}  // namespace onecopy::executorch
