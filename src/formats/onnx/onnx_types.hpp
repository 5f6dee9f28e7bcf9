// The element types of ONNX and of ONNX Runtime's own files, which share their numbers.
// https://github.com/onnx/onnx/blob/main/onnx/onnx.proto, TensorProto.DataType
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "onecopy/base/dtype.hpp"

namespace onecopy::onnx {

struct TypeFacts {
  std::string_view name;
  unsigned bits = 0;  // of an element; 0: text or nothing
  std::optional<DType> dtype;
};

inline constexpr std::int32_t text_type = 8;

// Null for a number that this reader does not know.
const TypeFacts* facts_of(std::int32_t type) noexcept;

}  // namespace onecopy::onnx
