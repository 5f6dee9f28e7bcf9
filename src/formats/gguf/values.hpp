// What stands in a GGUF file before the data, one value after the other, and the values of its metadata as text.
//
// Nothing is aligned there, and lengths are numbers of 64 bits: each is held against what is left of the file before
// anything is done with it.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include "onecopy/base/bytes.hpp"

namespace onecopy::gguf {

// `what` is the name of what is read, for messages.
class Cursor {
 public:
  explicit Cursor(Bytes file) noexcept : file_(file) {}

  std::uint64_t position() const noexcept { return at_; }
  std::uint64_t left() const noexcept { return file_.size() - at_; }

  template <std::integral Number>
  Number number(std::string_view what) {
    return static_cast<Number>(static_cast<std::make_unsigned_t<Number>>(little_endian(sizeof(Number), what)));
  }
  std::string_view bytes(std::uint64_t limit, std::string_view what);  // a length, and as many bytes
  std::string_view text(std::uint64_t limit, std::string_view what);   // the same in UTF-8
  void skip(std::uint64_t length, std::string_view what);

  // How many things of at least `least` bytes follow.
  std::uint64_t count(std::uint64_t least, std::string_view what);

  [[noreturn]] void fail(const std::string& what) const;

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

// Of the metadata's value `key`, which follows; throws FormatError for a number that is no type.
ValueType read_type(Cursor& cursor, std::string_view key);

// The value, which follows, as text.
std::string read_value(Cursor& cursor, ValueType type, std::string_view key);

}  // namespace onecopy::gguf
