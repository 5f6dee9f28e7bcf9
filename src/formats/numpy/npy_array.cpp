#include "formats/numpy/npy_array.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <system_error>
#include <utility>

#include "formats/checked_size.hpp"
#include "formats/signatures.hpp"
#include "formats/wire/cursor.hpp"
#include "formats/wire/json.hpp"
#include "onecopy/base/error.hpp"
#include "onecopy/formats/npy.hpp"

namespace onecopy::npy {
namespace {

using json::describe;

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

// Numbers that numpy has on some machines and DType does not: complex128, and long double in its two sizes.
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

// Numbers have a byte order, except those of one byte.
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

// A dict as Python writes it, of strings, True or False, and tuples of integers: {'descr': '<f4', 'shape': (3, 4), }.
class Literal : public TextCursor {
 public:
  // `begin`: of the text in the file.
  Literal(std::string_view text, std::uint64_t begin) noexcept : TextCursor("npy: the header", text, begin) {}

  // Calls value(key) for each item, which must read it; stops when it returns false.
  template <class Value>
  void dict(const Value& value) {
    expect("{");
    while (!take("}")) {
      const auto key = string();
      expect(":");
      if (!value(key)) return;
      if (take(",")) continue;
      expect("}");
      break;
    }
    end();
  }

  std::string_view string() {
    const char quote = next();
    if (quote != '\'' && quote != '"') fail(FormatError::malformed, "expected a string");
    const std::size_t begin = ++at_;
    for (; at_ < text_.size() && text_[at_] != quote; ++at_)
      if (text_[at_] < 0x20 || text_[at_] > 0x7E || text_[at_] == '\\')
        fail(FormatError::malformed, "the string contains characters that are not printable ASCII");
    if (at_ == text_.size()) fail(FormatError::malformed, "the string is not terminated");
    return text_.substr(begin, at_++ - begin);
  }

  bool boolean() {
    if (take("True")) return true;
    if (!take("False")) fail(FormatError::malformed, "expected True or False");
    return false;
  }

  // (), (3,), (3, 4); but (3) is a number, and no tuple.
  std::vector<std::uint64_t> shape() {
    std::vector<std::uint64_t> shape;
    expect("(");
    bool has_comma = true;
    while (!take(")")) {
      if (!has_comma) fail(FormatError::malformed, "expected ',' or ')'");
      if (shape.size() == most_axes) fail(FormatError::too_costly, "the shape has more than ", most_axes, " axes");
      shape.push_back(integer());
      if (at_ < text_.size() && text_[at_] == 'L') ++at_;  // the suffix of Python 2's long integers
      has_comma = take(",");
      if (!has_comma && shape.size() == 1) fail(FormatError::malformed, "the shape is not a tuple");
    }
    return shape;
  }
};

struct Header {
  ItemType type;
  std::string_view descr;
  std::string reason;  // why nothing more was read
  std::vector<std::uint64_t> shape;
  bool first_fastest = false;
};

// False: the elements of the type cannot be viewed, for the reason in `reason`.
bool read_type(Literal& literal, Header& header) {
  if (literal.next() == '[' || literal.next() == '(') {
    header.reason = "has a structured type, which is not supported: save its fields as separate arrays";
    return false;
  }
  header.descr = literal.string();
  const auto type = parse_type(header.descr);
  if (!type) literal.fail(FormatError::malformed, describe(header.descr), " is not a numpy dtype");
  header.type = *type;
  if (type->is_object) header.reason = "contains Python objects, which could only be read by unpickling";
  return !type->is_object;
}

Header read_header(std::string_view text, std::uint64_t begin) {
  Literal literal(text, begin);
  Header header;
  bool has_type = false;
  bool has_order = false;
  bool has_shape = false;
  literal.dict([&](std::string_view key) {
    const auto once = [&](bool& seen) {
      if (std::exchange(seen, true)) literal.fail(FormatError::inconsistent, describe(key), " occurs twice");
    };
    if (key == "descr") {
      once(has_type);
      return read_type(literal, header);
    }
    if (key == "fortran_order") {
      once(has_order);
      header.first_fastest = literal.boolean();
    } else if (key == "shape") {
      once(has_shape);
      header.shape = literal.shape();
    } else {
      literal.fail(FormatError::malformed, "the unknown key ", describe(key));
    }
    return true;
  });
  if (header.reason.empty() && !(has_type && has_order && has_shape))
    reject(FormatError::malformed, "npy: the header lacks descr, fortran_order or shape");
  return header;
}

// Where the dict lies in the file.
ByteRange header_range(Bytes file) {
  if (!is_npy(file)) reject(FormatError::not_this_format, "npy: the file does not begin with \\x93NUMPY and a version");
  Cursor cursor("npy", "the file", file, {signatures::npy.bytes.size(), file.size() - signatures::npy.bytes.size()});
  const std::uint64_t major = cursor.number(1);
  const std::uint64_t minor = cursor.number(1);
  if (major < 1 || major > 3 || minor != 0)
    reject(FormatError::unsupported, "npy: version ", major, '.', minor, " is not one of 1.0, 2.0 and 3.0");
  const std::uint64_t length = cursor.number(major == 1 ? 2 : 4);
  if (length > largest_header)
    reject(FormatError::too_costly, "npy: the header has ", length, " bytes, more than the maximum of ",
           largest_header);
  const std::uint64_t begin = cursor.position();
  (void)cursor.bytes(length, "header");
  return {begin, length};
}

}  // namespace

std::optional<ItemType> parse_type(std::string_view text) noexcept {
  char order = '=';  // the machine's, if none is given
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

bool is_npy(Bytes file) noexcept {
  return file.size() >= signatures::npy.bytes.size() + 2 && signatures::npy.is_in(file);
}

std::string add_array(Bytes whole, ByteRange place, std::string_view name, EntryList& entries) {
  const Bytes file = whole.subspan(place.offset, place.length);
  const ByteRange range = header_range(file);
  Header header = read_header(text_of(file.subspan(range.offset, range.length)), range.offset);
  if (!header.reason.empty()) return std::move(header.reason);
  const auto size = checked_size(header.shape, header.type.size, INT64_MAX);
  if (!size) reject(FormatError::out_of_bounds, "npy: the shape needs more than 2^63 - 1 bytes");
  const std::uint64_t begin = range.offset + range.length;
  const std::uint64_t left = file.size() - begin;
  if (*size != left)
    reject(*size > left ? FormatError::truncated : FormatError::inconsistent, "npy: the data has ", left,
           " bytes, but dtype and shape need ", *size, *size > left ? " (is the file truncated?)" : "");
  FoundArray array;
  array.name = name;
  if (header.type.dtype)
    array.dtype = *header.type.dtype;
  else
    array.raw_type = entries.keep(std::string(header.descr));
  if (header.first_fastest) array.strides = first_runs_fastest(header.shape);
  array.shape = std::move(header.shape);
  array.data = {place.offset + begin, *size};
  entries.add(std::move(array));
  return {};
}

Index parse(Bytes file) {
  EntryList entries;
  const std::string reason = add_array(file, {0, file.size()}, array_name, entries);
  if (!reason.empty()) reject(FormatError::unsupported, "npy: the array ", reason);
  return std::move(entries).finish_at_first("npy", {}, 0);
}

}  // namespace onecopy::npy
