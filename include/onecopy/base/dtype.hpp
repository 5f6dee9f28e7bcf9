// The element types of safetensors 0.8, with their sizes in bits: F4 and F6 elements are smaller than a byte.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace onecopy {

enum class DType : std::uint8_t {
  boolean,
  f4,
  f6_e2m3,
  f6_e3m2,
  u8,
  i8,
  f8_e5m2,
  f8_e4m3,
  f8_e8m0,
  f8_e4m3fnuz,
  f8_e5m2fnuz,
  i16,
  u16,
  f16,
  bf16,
  i32,
  u32,
  f32,
  c64,
  f64,
  i64,
  u64,
};

struct DTypeFacts {
  DType dtype;
  std::string_view name;  // as written in the file
  unsigned bits;
};

// In the order of the enum, so that facts[dtype] needs no search.
inline constexpr std::array<DTypeFacts, 22> dtype_table{{
    {DType::boolean, "BOOL", 8},
    {DType::f4, "F4", 4},
    {DType::f6_e2m3, "F6_E2M3", 6},
    {DType::f6_e3m2, "F6_E3M2", 6},
    {DType::u8, "U8", 8},
    {DType::i8, "I8", 8},
    {DType::f8_e5m2, "F8_E5M2", 8},
    {DType::f8_e4m3, "F8_E4M3", 8},
    {DType::f8_e8m0, "F8_E8M0", 8},
    {DType::f8_e4m3fnuz, "F8_E4M3FNUZ", 8},
    {DType::f8_e5m2fnuz, "F8_E5M2FNUZ", 8},
    {DType::i16, "I16", 16},
    {DType::u16, "U16", 16},
    {DType::f16, "F16", 16},
    {DType::bf16, "BF16", 16},
    {DType::i32, "I32", 32},
    {DType::u32, "U32", 32},
    {DType::f32, "F32", 32},
    {DType::c64, "C64", 64},
    {DType::f64, "F64", 64},
    {DType::i64, "I64", 64},
    {DType::u64, "U64", 64},
}};

constexpr const DTypeFacts& facts(DType dtype) noexcept { return dtype_table[static_cast<std::size_t>(dtype)]; }

constexpr std::string_view to_string(DType dtype) noexcept { return facts(dtype).name; }

constexpr unsigned bits(DType dtype) noexcept { return facts(dtype).bits; }

// The alignment of one element that is viewed in place, in bytes; 1 for packed sub-byte types.
constexpr unsigned item_alignment(DType dtype) noexcept { return (bits(dtype) + 7) / 8; }

constexpr std::optional<DType> parse_dtype(std::string_view name) noexcept {
  for (const auto& row : dtype_table)
    if (row.name == name) return row.dtype;
  return std::nullopt;
}

}  // namespace onecopy
