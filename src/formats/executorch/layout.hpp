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
  std::string raw_type;  // where there is no dtype: the schema's name, or "type 99"
  std::vector<std::uint64_t> shape;
  std::vector<std::uint64_t> strides;  // empty: the last axis runs fastest
};

// Throws FormatError where the axes are not each there once, or type and shape ask for another number of bytes than
// `length`; the size of types that PyTorch packs, and of those that are not known, is not checked.
Layout read_layout(const flatbuffer::Table& table, const std::string& name, std::uint64_t length);

}  // namespace onecopy::executorch
