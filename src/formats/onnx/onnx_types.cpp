#include "formats/onnx/onnx_types.hpp"

#include <algorithm>
#include <array>
#include <string>

#include "formats/checked_size.hpp"
#include "onecopy/formats/onnx.hpp"

namespace onecopy::onnx {
namespace {

// By TensorProto.DataType.
constexpr std::array<TypeFacts, 27> types{{
    {"UNDEFINED", 0, {}},
    {"FLOAT", 32, DType::f32},
    {"UINT8", 8, DType::u8},
    {"INT8", 8, DType::i8},
    {"UINT16", 16, DType::u16},
    {"INT16", 16, DType::i16},
    {"INT32", 32, DType::i32},
    {"INT64", 64, DType::i64},
    {"STRING", 0, {}},
    {"BOOL", 8, DType::boolean},
    {"FLOAT16", 16, DType::f16},
    {"DOUBLE", 64, DType::f64},
    {"UINT32", 32, DType::u32},
    {"UINT64", 64, DType::u64},
    {"COMPLEX64", 64, DType::c64},
    {"COMPLEX128", 128, {}},
    {"BFLOAT16", 16, DType::bf16},
    {"FLOAT8E4M3FN", 8, DType::f8_e4m3},
    {"FLOAT8E4M3FNUZ", 8, DType::f8_e4m3fnuz},
    {"FLOAT8E5M2", 8, DType::f8_e5m2},
    {"FLOAT8E5M2FNUZ", 8, DType::f8_e5m2fnuz},
    {"UINT4", 4, {}},
    {"INT4", 4, {}},
    {"FLOAT4E2M1", 4, DType::f4},
    {"FLOAT8E8M0", 8, DType::f8_e8m0},
    {"UINT2", 2, {}},
    {"INT2", 2, {}},
}};

}  // namespace

const TypeFacts* facts_of(std::int32_t type) noexcept {
  return type < 0 || static_cast<std::size_t>(type) >= types.size() ? nullptr
                                                                    : &types.at(static_cast<std::size_t>(type));
}

std::optional<std::uint64_t> size_of(std::int32_t type, const std::vector<std::uint64_t>& shape) noexcept {
  const TypeFacts* facts = facts_of(type);
  if (facts == nullptr || facts->bits == 0) return std::nullopt;
  const auto bits = checked_size(shape, facts->bits);
  if (!bits) return std::nullopt;
  return *bits / 8 + (*bits % 8 == 0 ? 0 : 1);
}

std::string_view type_name(std::int32_t type) noexcept {
  const TypeFacts* facts = facts_of(type);
  return facts == nullptr ? "unknown" : facts->name;
}

}  // namespace onecopy::onnx
