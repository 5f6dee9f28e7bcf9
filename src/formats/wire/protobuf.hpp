// Protocol Buffers read in place: the fields of a message one after the other, no schema, no copies.
//
// Every mistake is a FormatError with the byte where it stands. Offsets count from the start of the file, so that what
// lies in a nested message can be mapped. https://protobuf.dev/programming-guides/encoding/
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "formats/wire/cursor.hpp"
#include "onecopy/base/bytes.hpp"

namespace onecopy::protobuf {

enum class Wire : std::uint8_t { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

struct Field {
  std::uint32_t number = 0;
  Wire wire = Wire::varint;
  std::uint64_t value = 0;  // of a varint or a fixed number
  ByteRange payload;        // of `bytes`: text, packed numbers, a message
  ByteRange whole;          // with tag and length
};

// A message; `file` outlives it.
class Reader {
 public:
  Reader(Bytes file, ByteRange message) noexcept : file_(file), cursor_("protobuf", "a message", file, message) {}

  std::optional<Field> next();  // none at the end of the message

  // The numbers of a packed field, or the one of a field that is not packed.
  template <class Number>
  void varints(const Field& field, const Number& number) const {
    if (field.wire != Wire::bytes) return number(field.value);
    Reader packed(file_, field.payload);
    while (packed.cursor_.left() != 0) number(packed.varint());
  }

 private:
  std::uint64_t varint();

  Bytes file_;
  Cursor cursor_;
};

inline std::string_view text_at(Bytes file, ByteRange range) noexcept {
  return text_of(file.subspan(range.offset, range.length));
}

// Writing, for messages that are copied with some fields changed.
void append_varint(std::string& into, std::uint64_t value);
void append_number(std::string& into, std::uint32_t field, std::uint64_t value);
void append_bytes(std::string& into, std::uint32_t field, std::string_view content);

}  // namespace onecopy::protobuf
