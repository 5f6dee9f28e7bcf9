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
  if (value > 1) cursor.fail(FormatError::malformed, "a BOOL of ", describe(key), " is ", value);
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

// A length, and that many bytes.
std::string_view read_bytes(Cursor& cursor, std::uint64_t limit, std::string_view what) {
  const auto length = cursor.number<std::uint64_t>(what);
  if (length > limit)
    cursor.fail(FormatError::too_costly, describe(what), " would have ", length, " bytes, but ", limit, " are allowed");
  return cursor.text(length, what);
}

struct ArrayHead {
  ValueType type;
  std::uint64_t count = 0;
};

ArrayHead read_array_head(Cursor& cursor, std::string_view key) {
  const ValueType type = read_type(cursor, key);
  const unsigned fixed = facts(type).bytes;
  const unsigned least = fixed != 0 ? fixed : type == ValueType::text ? text_head : array_head;
  return {type, read_count(cursor, least, key)};
}

// Texts of arrays are skipped, not validated: vocabularies have tokens that are not UTF-8.
void skip_elements(Cursor& cursor, const ArrayHead& head, std::string_view key, int depth) {
  if (depth > deepest_array)
    cursor.fail(FormatError::too_costly, "arrays of ", describe(key), " are nested more than ", deepest_array, " deep");
  if (const unsigned fixed = facts(head.type).bytes; fixed != 0) return (void)cursor.bytes(head.count * fixed, key);
  for (std::uint64_t i = 0; i < head.count; ++i) {
    if (head.type == ValueType::text)
      (void)read_bytes(cursor, UINT64_MAX, key);
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

std::string_view read_text(Cursor& cursor, std::uint64_t limit, std::string_view what) {
  const auto text = read_bytes(cursor, limit, what);
  if (!json::is_utf8(text)) cursor.fail(FormatError::malformed, describe(what), " is not UTF-8");
  return text;
}

std::uint64_t read_count(Cursor& cursor, std::uint64_t least, std::string_view what) {
  const auto count = cursor.number<std::uint64_t>(what);
  if (count > cursor.left() / least)
    cursor.fail(FormatError::truncated, describe(what), " says ", count, " of ", least, " bytes or more each, but ",
                cursor.left(), " bytes are left");
  return count;
}

ValueType read_type(Cursor& cursor, std::string_view key) {
  const auto number = cursor.number<std::uint32_t>(key);
  if (number >= types.size()) cursor.fail(FormatError::unsupported, describe(key), " has the unknown type ", number);
  return static_cast<ValueType>(number);
}

std::string read_value(Cursor& cursor, ValueType type, std::string_view key) {
  switch (type) {
    case ValueType::text: return std::string(read_text(cursor, UINT64_MAX, key));
    case ValueType::array: return read_array(cursor, key);
    default: return read_number(cursor, type, key);
  }
}

}  // namespace onecopy::gguf
