// The element types of ggml: numbers, and blocks of numbers that are quantised together.
// https://github.com/ggml-org/ggml/blob/master/include/ggml.h, enum ggml_type
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "onecopy/base/dtype.hpp"

namespace onecopy::gguf {

struct TypeFacts {
  std::string_view name;
  std::uint32_t block = 0;  // numbers in a block; 0: removed from ggml
  std::uint32_t bytes = 0;  // of a block
  std::optional<DType> dtype;
};

// By their numbers in the file. Blocks of Q8_1 have the 36 bytes that ggml's code has; the gguf package says 40, the
// layout of 2023, for a type that files do not have.
inline constexpr std::array<TypeFacts, 43> types{{
    {"F32", 1, 4, DType::f32}, {"F16", 1, 2, DType::f16}, {"Q4_0", 32, 18, {}},        {"Q4_1", 32, 20, {}},
    {"Q4_2", 0, 0, {}},        {"Q4_3", 0, 0, {}},        {"Q5_0", 32, 22, {}},        {"Q5_1", 32, 24, {}},
    {"Q8_0", 32, 34, {}},      {"Q8_1", 32, 36, {}},      {"Q2_K", 256, 84, {}},       {"Q3_K", 256, 110, {}},
    {"Q4_K", 256, 144, {}},    {"Q5_K", 256, 176, {}},    {"Q6_K", 256, 210, {}},      {"Q8_K", 256, 292, {}},
    {"IQ2_XXS", 256, 66, {}},  {"IQ2_XS", 256, 74, {}},   {"IQ3_XXS", 256, 98, {}},    {"IQ1_S", 256, 50, {}},
    {"IQ4_NL", 32, 18, {}},    {"IQ3_S", 256, 110, {}},   {"IQ2_S", 256, 82, {}},      {"IQ4_XS", 256, 136, {}},
    {"I8", 1, 1, DType::i8},   {"I16", 1, 2, DType::i16}, {"I32", 1, 4, DType::i32},   {"I64", 1, 8, DType::i64},
    {"F64", 1, 8, DType::f64}, {"IQ1_M", 256, 56, {}},    {"BF16", 1, 2, DType::bf16}, {"Q4_0_4_4", 0, 0, {}},
    {"Q4_0_4_8", 0, 0, {}},    {"Q4_0_8_8", 0, 0, {}},    {"TQ1_0", 256, 54, {}},      {"TQ2_0", 256, 66, {}},
    {"IQ4_NL_4_4", 0, 0, {}},  {"IQ4_NL_4_8", 0, 0, {}},  {"IQ4_NL_8_8", 0, 0, {}},    {"MXFP4", 32, 17, {}},
    {"NVFP4", 64, 36, {}},     {"Q1_0", 128, 18, {}},     {"Q2_0", 64, 18, {}},
}};
static_assert(types.back().name == "Q2_0");

}  // namespace onecopy::gguf
