// A strict reader of JSON text (RFC 8259) that pulls values: no tree, and no copies of text without escapes.
//
// The text is valid UTF-8 (check with is_utf8 first) and outlives the reader. Every mistake is a FormatError with the
// byte where it stands. Depth is limited, so a text of a million brackets cannot exhaust the stack.
#pragma once

#include <cstdint>
#include <list>
#include <optional>
#include <string>
#include <string_view>

#include "formats/wire/text_cursor.hpp"

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

class Reader : public TextCursor {
 public:
  static constexpr int deepest = 64;

  // Strings that contain escapes are decoded into `unescaped`, which owns them.
  Reader(std::string_view text, std::list<std::string>& unescaped, std::optional<std::uint64_t> begin = {}) noexcept
      : TextCursor("JSON", text, begin), unescaped_(unescaped) {}

  // Calls field(key) for each member, which must read the value. The caller handles duplicate keys.
  template <class Field>
  void object(const Field& field) {
    items("{", "}", [&] {
      const auto key = string();
      expect(":");
      field(key);
    });
  }

  // Calls item() for each element, which must read it.
  template <class Item>
  void array(const Item& item) {
    items("[", "]", item);
  }

  std::string_view string();
  std::uint64_t integer();                       // a non-negative integer below 2^64; no fraction, no exponent
  void skip();                                   // any value
  bool null() noexcept { return take("null"); }  // whether the next value is null, which is then behind

 private:
  template <class Item>
  void items(std::string_view begin, std::string_view end, const Item& item) {
    if (depth_ == deepest) fail(FormatError::too_costly, "nested more than ", deepest, " deep");
    ++depth_;
    expect(begin);
    if (!take(end)) {
      do item();
      while (take(","));
      expect(end);
    }
    --depth_;
  }

  std::string_view unescape(std::size_t start);
  void skip_number();
  bool digits() noexcept;

  std::list<std::string>& unescaped_;
  int depth_ = 0;
};

}  // namespace onecopy::json
