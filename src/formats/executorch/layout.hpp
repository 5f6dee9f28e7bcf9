// The layout of a tensor in ExecuTorch's data files: a type of PyTorch, extents, and the order of the axes in memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "formats/wire/flatbuffer.hpp"
#include "onecopy/base/dtype.hpp"

namespace onecopy::executorch {

struct Layout {
  std::optional<DType> dtype;
  std::string raw_type;  // if DType has no such type: the schema's name, or "type 99"
  std::vector<std::uint64_t> shape;
  std::vector<std::uint64_t> strides;  // empty: the last axis runs fastest
};

// Throws FormatError unless each axis occurs once, and type and shape need `length` bytes; the size of types that
// PyTorch packs, and of unknown types, is not checked.
Layout read_layout(const flatbuffer::Table& table, const std::string& name, std::uint64_t length);

}  // namespace onecopy::executorch
