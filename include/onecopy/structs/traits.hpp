// Classification of C++ types for saving, opening and the streams.
#pragma once

#include <array>
#include <complex>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "onecopy/base/dtype.hpp"
#include "onecopy/structs/owning_span.hpp"

namespace onecopy {

// The bytes are the value: `std::is_pod` before C++20.
template <class T>
inline constexpr bool is_pod_v = std::is_trivial_v<T> && std::is_standard_layout_v<T>;

template <class T>
inline constexpr bool is_vector_v = false;
template <class T, class Allocator>
inline constexpr bool is_vector_v<std::vector<T, Allocator>> = true;

template <class T>
inline constexpr bool is_std_array_v = false;
template <class T, std::size_t n>
inline constexpr bool is_std_array_v<std::array<T, n>> = true;

template <class T>
inline constexpr bool is_string_v = false;
template <class Traits, class Allocator>
inline constexpr bool is_string_v<std::basic_string<char, Traits, Allocator>> = true;

template <class T>
inline constexpr bool is_optional_v = false;
template <class T>
inline constexpr bool is_optional_v<std::optional<T>> = true;

template <class T>
inline constexpr bool is_pair_v = false;
template <class First, class Second>
inline constexpr bool is_pair_v<std::pair<First, Second>> = true;

template <class T>
inline constexpr bool is_complex_v = false;
template <class T>
inline constexpr bool is_complex_v<std::complex<T>> = true;

// One number: arithmetic types, enums, std::byte, complex<float>.
template <class T>
inline constexpr bool is_scalar_v =
    std::is_arithmetic_v<T> || std::is_enum_v<T> || std::same_as<T, std::complex<float>>;

}  // namespace onecopy
