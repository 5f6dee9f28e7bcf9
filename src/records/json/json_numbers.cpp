#include "records/json/json_numbers.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <limits>

namespace onecopy::records {
namespace {

// from_chars does not distinguish overflow from underflow: this is n of the number 0.d... * 10^n.
std::int64_t decimal_exponent(std::string_view number) noexcept {
  const auto mantissa = number.substr(0, number.find_first_of("eE"));
  const auto first = static_cast<std::int64_t>(std::min(mantissa.find_first_of("123456789"), mantissa.size()));
  const auto point = static_cast<std::int64_t>(std::min(mantissa.find('.'), mantissa.size()));
  const std::int64_t leading = point > first ? point - first : point + 1 - first;
  auto exponent = number.substr(mantissa.size());
  if (exponent.empty()) return leading;
  exponent.remove_prefix(exponent.size() > 1 && exponent[1] == '+' ? 2 : 1);
  std::int64_t power = 0;
  const auto [end, error] = std::from_chars(exponent.data(), exponent.data() + exponent.size(), power);
  constexpr std::int64_t beyond_all = std::int64_t{1} << 62U;
  if (error == std::errc::result_out_of_range) power = beyond_all;
  power = std::clamp(power, -beyond_all, beyond_all);
  return leading + (exponent.starts_with('-') ? -std::abs(power) : power);
}

}  // namespace

double real_of(std::string_view number) noexcept {
  double value = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
  if (error != std::errc::result_out_of_range) return value;
  value = decimal_exponent(number) > 0 ? std::numeric_limits<double>::infinity() : 0.0;
  return number.front() == '-' ? -value : value;
}

std::vector<std::byte> twos_complement_of(std::string_view digits) {
  const bool negative = digits.front() == '-';
  if (negative) digits.remove_prefix(1);
  std::vector<std::uint32_t> words{0};  // the lowest first
  while (!digits.empty()) {
    const auto some = digits.substr(0, std::min<std::size_t>(9, digits.size()));
    digits.remove_prefix(some.size());
    std::uint64_t carry = 0;
    std::uint64_t factor = 1;
    for (const char c : some) {
      carry = carry * 10 + static_cast<std::uint64_t>(c - '0');
      factor *= 10;
    }
    for (auto& word : words) {
      carry += factor * word;
      word = static_cast<std::uint32_t>(carry);
      carry >>= 32U;
    }
    if (carry != 0) words.push_back(static_cast<std::uint32_t>(carry));
  }
  words.push_back(0);  // for the sign
  bool borrow = negative;
  std::vector<std::byte> bytes;
  for (std::uint32_t word : words) {
    if (negative) word = ~word + (borrow ? 1U : 0U);
    borrow = borrow && word == 0;
    for (int i = 0; i < 4; ++i, word >>= 8U) bytes.push_back(static_cast<std::byte>(word));
  }
  const auto sign = [](std::byte byte) { return (byte & std::byte{0x80}) != std::byte{0}; };
  while (bytes.size() > 1 && bytes.back() == (negative ? std::byte{0xFF} : std::byte{0}) &&
         sign(bytes[bytes.size() - 2]) == negative)
    bytes.pop_back();
  return bytes;
}

}  // namespace onecopy::records
