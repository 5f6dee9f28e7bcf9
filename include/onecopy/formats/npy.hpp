// Reading .npy: a magic, a version, a Python dict literal that says type, order and shape, then the elements.
//
// The literal is read by a small strict reader of its own; nothing is evaluated. Types that DType has not (other byte
// order, complex128, text, dates, bytes) are told as numpy spells them. Python objects are refused, because only
// unpickling could read them, and structured types because an array has one type here. The elements are exactly the
// rest of the file. https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
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
