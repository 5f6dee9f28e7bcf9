// A strict reader of JSON text (RFC 8259) that pulls: no tree, no copies of what needs no unescaping.
//
// The text is valid UTF-8 (check with is_utf8 first) and outlives the reader. Every mistake is a FormatError with the
// byte where it stands. Depth is limited, so a text of a million brackets cannot exhaust the stack.
#pragma once

#include <cstdint>
#include <list>
#include <optional>
#include <string>
#include <string_view>

#include "onecopy/base/error.hpp"

namespace onecopy::json {

bool is_utf8(std::string_view text) noexcept;

// The escape sequence that `text` begins with, decoded. `size`: its bytes, or where the mistake was found.
struct Escape {
  std::size_t size = 0;
  const char* mistake = nullptr;
};
Escape read_escape(std::string_view text, std::string& into);

// `text` as a JSON string with its quotes.
std::string quoted(std::string_view text);

// A name as it can stand in a message: in single quotes, cut to 200 bytes, no control characters.
std::string describe(std::string_view name);

class Reader {
 public:
  static constexpr int deepest = 64;

  // Strings that contain escapes are decoded into `unescaped`, which owns them. `begin`: of the text in its file, for
  // the offsets of errors; empty: the text does not lie in a file as it is.
  Reader(std::string_view text, std::list<std::string>& unescaped, std::optional<std::uint64_t> begin = {}) noexcept
      : text_(text), unescaped_(unescaped), begin_(begin) {}

  // Calls field(key) for each member, which must read the value. Duplicate keys are the caller's business.
  template <class Field>
  void object(const Field& field) {
    open('{');
    if (!take('}')) {
      do {
        skip_space();
        const auto key = string();
        expect(':');
        field(key);
      } while (take(','));
      expect('}');
    }
    --depth_;
  }

  // Calls item() for each element, which must read it.
  template <class Item>
  void array(const Item& item) {
    open('[');
    if (!take(']')) {
      do item();
      while (take(','));
      expect(']');
    }
    --depth_;
  }

  std::string_view string();
  std::uint64_t integer();  // a non-negative integer below 2^64; no fraction, no exponent
  void skip();              // any value
  bool null();              // whether the next value is null, which is then behind
  void end();               // nothing but space is left

  std::size_t position() const noexcept { return at_; }
  [[noreturn]] void fail(const std::string& what, FormatError::Kind kind = FormatError::malformed) const;

 private:
  void skip_space() noexcept;
  bool take(char wanted) noexcept;  // after space
  void expect(char wanted);
  void open(char bracket);
  std::string_view unescape(std::size_t start);
  void escape(std::string& into);
  void skip_number();
  void skip_word(std::string_view word);
  bool digits() noexcept;

  std::string_view text_;
  std::list<std::string>& unescaped_;
  std::optional<std::uint64_t> begin_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace onecopy::json
