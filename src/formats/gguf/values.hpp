// The values of a GGUF file before the data, read one after the other, and the metadata as text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "formats/wire/cursor.hpp"

namespace onecopy::gguf {

enum class ValueType : std::uint8_t {
  uint8,
  int8,
  uint16,
  int16,
  uint32,
  int32,
  float32,
  boolean,
  text,
  array,
  uint64,
  int64,
  float64,
};

// A length, and a text of that many bytes, UTF-8. `what` names it, for messages.
std::string_view read_text(Cursor& cursor, std::uint64_t limit, std::string_view what);

// The number of following items of at least `least` bytes each.
std::uint64_t read_count(Cursor& cursor, std::uint64_t least, std::string_view what);

// The type of the metadata's value `key`; throws FormatError for an unknown number.
ValueType read_type(Cursor& cursor, std::string_view key);

// Reads the value, as text.
std::string read_value(Cursor& cursor, ValueType type, std::string_view key);

}  // namespace onecopy::gguf
