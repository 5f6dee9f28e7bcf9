#include "formats/wire/protobuf.hpp"

namespace onecopy::protobuf {
namespace {

constexpr unsigned longest_varint = 10;  // bytes
constexpr std::uint64_t highest_field = (std::uint64_t{1} << 29U) - 1;

}  // namespace

std::uint64_t Reader::varint() {
  std::uint64_t value = 0;
  for (unsigned i = 0; i < longest_varint; ++i) {
    const std::uint64_t byte = cursor_.number(1, "a number");
    if (i == longest_varint - 1 && byte > 1) cursor_.fail(FormatError::malformed, "a number is larger than 64 bits");
    value |= (byte & 0x7FU) << (7 * i);
    if (byte < 0x80U) return value;
  }
  cursor_.fail(FormatError::malformed, "a number is longer than 10 bytes");
}

std::optional<Field> Reader::next() {
  if (cursor_.left() == 0) return std::nullopt;
  const std::uint64_t start = cursor_.position();
  const std::uint64_t tag = varint();
  if (tag >> 3U == 0 || tag >> 3U > highest_field)
    cursor_.fail(FormatError::malformed, "the field number ", tag >> 3U, " is invalid");
  Field field;
  field.number = static_cast<std::uint32_t>(tag >> 3U);
  field.wire = static_cast<Wire>(tag & 7U);
  switch (tag & 7U) {
    case 0: field.value = varint(); break;
    case 1: field.value = cursor_.number(8, "a number"); break;
    case 5: field.value = cursor_.number(4, "a number"); break;
    case 2: {
      const std::uint64_t length = varint();
      field.payload = {cursor_.position(), length};
      (void)cursor_.bytes(length, "a field");
      break;
    }
    default: cursor_.fail(FormatError::malformed, "field ", field.number, " has the unknown wire type ", tag & 7U);
  }
  field.whole = {start, cursor_.position() - start};
  return field;
}

void append_varint(std::string& into, std::uint64_t value) {
  for (; value >= 0x80U; value >>= 7U) into.push_back(static_cast<char>((value & 0x7FU) | 0x80U));
  into.push_back(static_cast<char>(value));
}

void append_number(std::string& into, std::uint32_t field, std::uint64_t value) {
  append_varint(into, std::uint64_t{field} << 3U);
  append_varint(into, value);
}

void append_bytes(std::string& into, std::uint32_t field, std::string_view content) {
  append_varint(into, std::uint64_t{field} << 3U | 2U);
  append_varint(into, content.size());
  into += content;
}

}  // namespace onecopy::protobuf
