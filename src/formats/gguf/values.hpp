// The values of a GGUF file before the data, read one after the other, and the metadata as text.
//
// Nothing is aligned there, and lengths are 64-bit numbers: each is compared with the remaining bytes before it is
// used.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include "onecopy/base/bytes.hpp"
#include "onecopy/base/error.hpp"

namespace onecopy::gguf {

// `what` names the value that is read, for messages.
class Cursor {
 public:
  explicit Cursor(Bytes file) noexcept : file_(file) {}

  std::uint64_t position() const noexcept { return at_; }
  std::uint64_t left() const noexcept { return file_.size() - at_; }

  template <std::integral Number>
  Number number(std::string_view what) {
    return static_cast<Number>(static_cast<std::make_unsigned_t<Number>>(little_endian(sizeof(Number), what)));
  }
  std::string_view bytes(std::uint64_t limit, std::string_view what);  // a length, and that many bytes
  std::string_view text(std::uint64_t limit, std::string_view what);   // as bytes(), in UTF-8
  void skip(std::uint64_t length, std::string_view what);

  // The number of following items of at least `least` bytes each.
  std::uint64_t count(std::uint64_t least, std::string_view what);

  [[noreturn]] void fail(const std::string& what, FormatError::Kind kind = FormatError::malformed) const;

 private:
  std::uint64_t little_endian(unsigned bytes, std::string_view what);

  Bytes file_;
  std::uint64_t at_ = 0;
};

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

// The type of the metadata's value `key`; throws FormatError for an unknown number.
ValueType read_type(Cursor& cursor, std::string_view key);

// Reads the value, as text.
std::string read_value(Cursor& cursor, ValueType type, std::string_view key);

}  // namespace onecopy::gguf
