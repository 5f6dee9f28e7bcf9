// Rounds numbers of bytes to multiples of a boundary.
#pragma once

#include <concepts>

namespace onecopy {

// The smallest multiple of `boundary`, which is not 0, that is at least `number`; it must fit.
template <std::unsigned_integral T>
constexpr T round_up(T number, T boundary) noexcept {
  return (number + boundary - 1) / boundary * boundary;
}

// The largest multiple of `boundary`, which is not 0, that is at most `number`.
template <std::unsigned_integral T>
constexpr T round_down(T number, T boundary) noexcept {
  return number / boundary * boundary;
}

}  // namespace onecopy
