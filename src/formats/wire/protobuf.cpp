#include "formats/wire/protobuf.hpp"

#include "onecopy/base/error.hpp"

namespace onecopy::protobuf {
namespace {

constexpr unsigned longest_varint = 10;  // bytes
constexpr std::uint64_t highest_field = (std::uint64_t{1} << 29U) - 1;

}  // namespace

void Reader::fail(const std::string& what, FormatError::Kind kind) const {
  throw FormatError(kind, concat("protobuf: ", what, " at byte ", at_), at_);
}

std::uint64_t Reader::varint() {
  std::uint64_t value = 0;
  for (unsigned i = 0; i < longest_varint; ++i) {
    if (at_ == end_) fail("a number is cut off", FormatError::truncated);
    const auto byte = std::to_integer<std::uint64_t>(file_[at_++]);
    if (i == longest_varint - 1 && byte > 1) fail("a number is larger than 64 bits");
    value |= (byte & 0x7FU) << (7 * i);
    if (byte < 0x80U) return value;
  }
  fail("a number is longer than 10 bytes");
}

std::uint64_t Reader::fixed(unsigned bytes) {
  if (!in_bounds(end_, at_, bytes)) fail("a number is cut off", FormatError::truncated);
  const std::uint64_t value = little_endian(file_.subspan(at_, bytes));
  at_ += bytes;
  return value;
}

std::optional<Field> Reader::next() {
  if (at_ == end_) return std::nullopt;
  const std::uint64_t start = at_;
  const std::uint64_t tag = varint();
  if (tag >> 3U == 0 || tag >> 3U > highest_field) fail("there is no field " + std::to_string(tag >> 3U));
  Field field;
  field.number = static_cast<std::uint32_t>(tag >> 3U);
  field.wire = static_cast<Wire>(tag & 7U);
  switch (tag & 7U) {
    case 0: field.value = varint(); break;
    case 1: field.value = fixed(8); break;
    case 5: field.value = fixed(4); break;
    case 2: {
      const std::uint64_t length = varint();
      if (!in_bounds(end_, at_, length))
        fail(concat("field ", field.number, " would have ", length, " bytes, but ", end_ - at_,
                    " are left (is the file cut off?)"),
             FormatError::truncated);
      field.payload = {at_, length};
      at_ += length;
      break;
    }
    default: fail(concat("field ", field.number, " has the unknown wire type ", tag & 7U));
  }
  field.whole = {start, at_ - start};
  return field;
}

std::string_view text_at(Bytes file, ByteRange range) noexcept {
  const Bytes part = file.subspan(range.offset, range.length);
  return {reinterpret_cast<const char*>(part.data()), part.size()};
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
