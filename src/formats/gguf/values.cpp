#include "formats/gguf/values.hpp"

#include <array>
#include <bit>
#include <charconv>

#include "formats/wire/json.hpp"
#include "onecopy/base/error.hpp"
#include "onecopy/formats/gguf.hpp"

namespace onecopy::gguf {
namespace {

using json::describe;

struct ValueFacts {
  std::string_view name;
  unsigned bytes = 0;  // 0: of no fixed size
};

constexpr std::array<ValueFacts, 13> types{{
    {"UINT8", 1},
    {"INT8", 1},
    {"UINT16", 2},
    {"INT16", 2},
    {"UINT32", 4},
    {"INT32", 4},
    {"FLOAT32", 4},
    {"BOOL", 1},
    {"STRING", 0},
    {"ARRAY", 0},
    {"UINT64", 8},
    {"INT64", 8},
    {"FLOAT64", 8},
}};
constexpr unsigned text_head = 8;    // bytes that an empty text has
constexpr unsigned array_head = 12;  // the same of an array: type and length

const ValueFacts& facts(ValueType type) noexcept { return types.at(static_cast<std::size_t>(type)); }

// The shortest text that reads back as the same number.
template <class Float>
std::string text_of(Float value) {
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  return {text.data(), end};
}

std::string_view read_bool(Cursor& cursor, std::string_view key) {
  const auto value = cursor.number<std::uint8_t>(key);
  if (value > 1) cursor.fail(concat("a BOOL of ", describe(key), " is ", value));
  return value == 1 ? "true" : "false";
}

std::string read_number(Cursor& cursor, ValueType type, std::string_view key) {
  switch (type) {
    case ValueType::uint8: return std::to_string(cursor.number<std::uint8_t>(key));
    case ValueType::int8: return std::to_string(cursor.number<std::int8_t>(key));
    case ValueType::uint16: return std::to_string(cursor.number<std::uint16_t>(key));
    case ValueType::int16: return std::to_string(cursor.number<std::int16_t>(key));
    case ValueType::uint32: return std::to_string(cursor.number<std::uint32_t>(key));
    case ValueType::int32: return std::to_string(cursor.number<std::int32_t>(key));
    case ValueType::float32: return text_of(std::bit_cast<float>(cursor.number<std::uint32_t>(key)));
    case ValueType::boolean: return std::string(read_bool(cursor, key));
    case ValueType::uint64: return std::to_string(cursor.number<std::uint64_t>(key));
    case ValueType::int64: return std::to_string(cursor.number<std::int64_t>(key));
    case ValueType::float64: return text_of(std::bit_cast<double>(cursor.number<std::uint64_t>(key)));
    case ValueType::text:
    case ValueType::array: break;
  }
  return {};
}

struct ArrayHead {
  ValueType type;
  std::uint64_t count = 0;
};

ArrayHead read_array_head(Cursor& cursor, std::string_view key) {
  const ValueType type = read_type(cursor, key);
  const unsigned fixed = facts(type).bytes;
  const unsigned least = fixed != 0 ? fixed : type == ValueType::text ? text_head : array_head;
  return {type, cursor.count(least, key)};
}

// Texts of arrays are skipped, not validated: vocabularies have tokens that are not UTF-8.
void skip_elements(Cursor& cursor, const ArrayHead& head, std::string_view key, int depth) {
  if (depth > deepest_array)
    cursor.fail(concat("arrays of ", describe(key), " are nested more than ", deepest_array, " deep"),
                FormatError::too_costly);
  if (const unsigned fixed = facts(head.type).bytes; fixed != 0) return cursor.skip(head.count * fixed, key);
  for (std::uint64_t i = 0; i < head.count; ++i) {
    if (head.type == ValueType::text)
      (void)cursor.bytes(UINT64_MAX, key);
    else
      skip_elements(cursor, read_array_head(cursor, key), key, depth + 1);
  }
}

std::string read_array(Cursor& cursor, std::string_view key) {
  const ArrayHead head = read_array_head(cursor, key);
  if (facts(head.type).bytes == 0 || head.count > longest_listed) {
    skip_elements(cursor, head, key, 1);
    return '[' + std::to_string(head.count) + " values of " + std::string(facts(head.type).name) + ']';
  }
  std::string text = "[";
  for (std::uint64_t i = 0; i < head.count; ++i) text += (i == 0 ? "" : ", ") + read_number(cursor, head.type, key);
  return text + ']';
}

}  // namespace

void Cursor::fail(const std::string& what, FormatError::Kind kind) const {
  throw FormatError(kind, concat("GGUF: ", what, ", at byte ", at_), at_);
}

std::uint64_t Cursor::little_endian(unsigned bytes, std::string_view what) {
  if (!in_bounds(file_.size(), at_, bytes)) fail(describe(what) + " is cut off", FormatError::truncated);
  const std::uint64_t value = onecopy::little_endian(file_.subspan(at_, bytes));
  at_ += bytes;
  return value;
}

std::string_view Cursor::bytes(std::uint64_t limit, std::string_view what) {
  const auto length = number<std::uint64_t>(what);
  if (length > limit || !in_bounds(file_.size(), at_, length))
    fail(concat(describe(what), " would have ", length, " bytes, but ",
                (length > limit ? std::to_string(limit) + " are allowed" : std::to_string(left()) + " are left")),
         length > limit ? FormatError::too_costly : FormatError::truncated);
  const Bytes found = file_.subspan(at_, length);
  at_ += length;
  return {reinterpret_cast<const char*>(found.data()), found.size()};
}

std::string_view Cursor::text(std::uint64_t limit, std::string_view what) {
  const auto found = bytes(limit, what);
  if (!json::is_utf8(found)) fail(describe(what) + " is not UTF-8");
  return found;
}

void Cursor::skip(std::uint64_t length, std::string_view what) {
  if (!in_bounds(file_.size(), at_, length)) fail(describe(what) + " is cut off", FormatError::truncated);
  at_ += length;
}

std::uint64_t Cursor::count(std::uint64_t least, std::string_view what) {
  const auto count = number<std::uint64_t>(what);
  if (count > left() / least)
    fail(concat(describe(what), " says ", count, " of ", least, " bytes or more each, but ", left(), " bytes are left"),
         FormatError::truncated);
  return count;
}

ValueType read_type(Cursor& cursor, std::string_view key) {
  const auto number = cursor.number<std::uint32_t>(key);
  if (number >= types.size())
    cursor.fail(concat(describe(key), " has the unknown type ", number), FormatError::unsupported);
  return static_cast<ValueType>(number);
}

std::string read_value(Cursor& cursor, ValueType type, std::string_view key) {
  switch (type) {
    case ValueType::text: return std::string(cursor.text(UINT64_MAX, key));
    case ValueType::array: return read_array(cursor, key);
    default: return read_number(cursor, type, key);
  }
}

}  // namespace onecopy::gguf
