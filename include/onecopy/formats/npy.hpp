// Reading .npy: a magic, a version, a Python dict literal with type, order and shape, then the elements.
//
// A small strict reader parses the literal; nothing is evaluated. Types that DType does not have (other byte order,
// complex128, text, dates, bytes) are reported in numpy's spelling. Python objects are refused, because only unpickling
// could read them, and structured types because an array has one type here. The elements must fill exactly the rest of
// the file. The Index owns its names and does not refer to the bytes. Pure functions: any thread.
// https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
#pragma once

#include <cstdint>
#include <string_view>

#include "onecopy/base/bytes.hpp"
#include "onecopy/formats/index.hpp"

namespace onecopy::npy {

inline constexpr std::uint64_t largest_header = 1'000'000;  // bytes; numpy itself reads no more than 10,000
inline constexpr std::string_view array_name = "array";     // of the one array, which has none in the file

bool is_npy(Bytes file) noexcept;

// Throws FormatError.
Index parse(Bytes file);

}  // namespace onecopy::npy
