// A place in untrusted bytes that moves forward, with the one bounds check of the parsers of binary files.
//
//     Cursor cursor("zip", "the end record", file, {at, size});
//     const std::uint64_t disk = cursor.number(2);
//
// Nothing needs to be aligned, and a length is compared with the remaining bytes before it is used. Every mistake is a
// FormatError with its byte in the file.
#pragma once

#include <concepts>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "formats/wire/json.hpp"
#include "onecopy/base/bytes.hpp"
#include "onecopy/base/error.hpp"

namespace onecopy {

inline std::string_view text_of(Bytes bytes) noexcept {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

class Cursor {
 public:
  // Reads `range`, which lies in the file. `format` and `whole` are for messages: literals.
  Cursor(std::string_view format, std::string_view whole, Bytes file, ByteRange range) noexcept
      : format_(format), whole_(whole), file_(file), at_(range.offset), end_(range.offset + range.length) {}

  std::uint64_t position() const noexcept { return at_; }
  std::uint64_t left() const noexcept { return end_ - at_; }

  // The next bytes. Messages name `part` instead of the whole, unless it is empty.
  Bytes bytes(std::uint64_t size, std::string_view part = {}) {
    if (!in_bounds(end_, at_, size)) fail_at_end(size, part);
    const Bytes taken = file_.subspan(at_, size);
    at_ += size;
    return taken;
  }

  std::string_view text(std::uint64_t size, std::string_view part = {}) { return text_of(bytes(size, part)); }

  // A little-endian number of this many bytes, up to 8.
  std::uint64_t number(unsigned size, std::string_view part = {}) { return little_endian(bytes(size, part)); }

  template <std::integral Number>
  Number number(std::string_view part = {}) {
    return static_cast<Number>(static_cast<std::make_unsigned_t<Number>>(number(sizeof(Number), part)));
  }

  // A cursor over the next bytes, which this one passes.
  Cursor inside(std::uint64_t size, std::string_view whole) {
    const ByteRange range{at_, size};
    (void)bytes(size, whole);
    return {format_, whole, file_, range};
  }

  template <class... Parts>
  [[noreturn]] void fail(FormatError::Kind kind, const Parts&... parts) const {
    throw FormatError(kind, concat(format_, ": ", parts..., ", at byte ", at_), at_);
  }

 private:
  [[noreturn]] void fail_at_end(std::uint64_t size, std::string_view part) const {
    fail(FormatError::truncated, part.empty() ? std::string(whole_) : json::describe(part), " is truncated: ", size,
         " bytes are needed, but ", left(), " are left");
  }

  std::string_view format_;
  std::string_view whole_;
  Bytes file_;
  std::uint64_t at_;
  std::uint64_t end_;
};

}  // namespace onecopy
