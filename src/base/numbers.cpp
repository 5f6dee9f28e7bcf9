#include "base/numbers.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>

namespace onecopy {

std::optional<std::uint64_t> number_after(std::string_view text, std::string_view label) {
  const auto found = text.find(label);
  if (found == std::string_view::npos) return std::nullopt;
  text.remove_prefix(found + label.size());
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end == text.data()) return std::nullopt;
  return number;
}

std::string hexadecimal(std::uint32_t number) {
  std::array<char, 9> text{};
  std::snprintf(text.data(), text.size(), "%08x", number);
  return text.data();
}

}  // namespace onecopy
