// Combines a tree of types with buffers into nodes that can be read.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "onecopy/base/bytes.hpp"
#include "onecopy/base/dtype.hpp"
#include "onecopy/records/node.hpp"

namespace onecopy::records {

struct Buffer {
  DType dtype = DType::u8;
  Bytes bytes;
};

// The position of the buffer of this name; none: the file does not have it.
using FindBuffer = std::function<std::optional<Buffer>(const std::string& name)>;

// The node of `type`; type and buffers must outlive it. Throws FormatError for buffers that do not fit the type.
Node bind_nodes(const Type& type, std::string path, const FindBuffer& find);

}  // namespace onecopy::records
