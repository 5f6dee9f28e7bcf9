// Reading GGUF, the files of llama.cpp and ggml: key-value metadata, a list of tensors, and their data, aligned.
//
// Versions 2 and 3, little-endian. Shapes are row-major, as in numpy, the reverse of the order in the file. Types that
// DType has (F32, F16, BF16, F64, I8 ... I64) are viewed as such; quantised ones have ggml's name in `raw_type`
// ("Q4_K"), the shape of the numbers that they encode, and bytes in blocks. The metadata is converted to text: numbers
// and texts unchanged, arrays of up to 32 numbers as "[1, 2, 3]", others as "[32000 values of STRING]"; and
// "GGUF.version". Names have 64 bytes at most, shapes 4 axes; data is aligned to `general.alignment`. The Index owns
// its names and does not refer to the bytes. Pure functions: any thread.
// https://github.com/ggml-org/ggml/blob/master/docs/gguf.md; types up to Q2_0 (42).
#pragma once

#include <cstdint>

#include "onecopy/base/bytes.hpp"
#include "onecopy/formats/index.hpp"

namespace onecopy::gguf {

inline constexpr std::uint64_t longest_name = 64;  // of a tensor, bytes
inline constexpr std::uint64_t longest_key = 65535;
inline constexpr std::uint32_t most_axes = 4;
inline constexpr std::uint32_t default_alignment = 32;
inline constexpr std::uint32_t largest_alignment = 1U << 20U;
inline constexpr int deepest_array = 8;              // arrays inside each other
inline constexpr std::uint64_t longest_listed = 32;  // numbers of an array that the metadata spells out

// By content: the letters "GGUF".
bool is_gguf(Bytes file) noexcept;

// Throws FormatError: another version or byte order, truncated values, types that are unknown or were removed, rows
// that are not whole blocks, data that is unaligned, overlaps, or lies outside the file.
Index parse(Bytes file);

}  // namespace onecopy::gguf
