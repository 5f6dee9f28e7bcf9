#include <algorithm>
#include <array>
#include <charconv>
#include <system_error>
#include <utility>

#include "formats/numpy/npy_array.hpp"

namespace onecopy::npy {
namespace {

struct Known {
  char kind;
  std::uint64_t size;
  DType dtype;
};

constexpr std::array<Known, 13> known{{
    {'b', 1, DType::boolean},
    {'i', 1, DType::i8},
    {'i', 2, DType::i16},
    {'i', 4, DType::i32},
    {'i', 8, DType::i64},
    {'u', 1, DType::u8},
    {'u', 2, DType::u16},
    {'u', 4, DType::u32},
    {'u', 8, DType::u64},
    {'f', 2, DType::f16},
    {'f', 4, DType::f32},
    {'f', 8, DType::f64},
    {'c', 8, DType::c64},
}};

// Numbers that numpy has on some machine, and DType has not: complex128, and the long double in its two sizes.
constexpr std::array<std::pair<char, std::uint64_t>, 5> wider{{{'f', 12}, {'f', 16}, {'c', 16}, {'c', 24}, {'c', 32}}};

constexpr std::uint64_t largest_item = INT32_MAX;  // numpy counts the bytes of an element in an int

// "" and "[ns]", "[25s]", ...
bool is_unit(std::string_view text) noexcept {
  constexpr std::array<std::string_view, 14> units{"Y",  "M",  "W",  "D",  "h",  "m",  "s",
                                                   "ms", "us", "ns", "ps", "fs", "as", "generic"};
  if (text.empty()) return true;
  if (text.size() < 3 || text.front() != '[' || text.back() != ']') return false;
  text = text.substr(1, text.size() - 2);
  text.remove_prefix(std::min(text.find_first_not_of("0123456789"), text.size()));
  return std::ranges::find(units, text) != units.end();
}

// Numbers have a byte order, but for those of one byte.
std::optional<ItemType> number_type(char order, char kind, std::uint64_t size) noexcept {
  if (order == '|' && size != 1) return std::nullopt;
  for (const Known& one : known) {
    if (one.kind != kind || one.size != size) continue;
    const bool is_native = order != '>' || size == 1;
    return ItemType{is_native ? std::optional(one.dtype) : std::nullopt, size};
  }
  if (std::ranges::find(wider, std::pair(kind, size)) == wider.end()) return std::nullopt;
  return ItemType{std::nullopt, size};
}

}  // namespace

std::optional<ItemType> parse_type(std::string_view text) noexcept {
  char order = '=';  // of the machine, where none is said
  if (!text.empty() && std::string_view("<>|=").find(text.front()) != std::string_view::npos) {
    order = text.front();
    text.remove_prefix(1);
  }
  if (text.empty()) return std::nullopt;
  const char kind = text.front();
  text.remove_prefix(1);
  if (kind == 'O') return ItemType{std::nullopt, 0, true};
  std::uint64_t size = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), size);
  if (error != std::errc() || size > largest_item) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  if (kind == 'M' || kind == 'm') return size == 8 && is_unit(text) ? std::optional(ItemType{{}, size}) : std::nullopt;
  if (!text.empty()) return std::nullopt;
  switch (kind) {
    case 'S':
    case 'V': return ItemType{std::nullopt, size};
    case 'U': return size <= largest_item / 4 ? std::optional(ItemType{std::nullopt, size * 4}) : std::nullopt;
    default: return number_type(order, kind, size);
  }
}

}  // namespace onecopy::npy
