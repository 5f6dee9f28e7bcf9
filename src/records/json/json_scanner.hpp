// A strict scanner of JSON text, value by value, with positions in errors. json_import.hpp describes what is accepted.
//
// json::Reader reads headers in a similar way: it has no fractions, and its input is small.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "onecopy/base/bytes.hpp"
#include "onecopy/base/error.hpp"

namespace onecopy::records {

struct JsonValue {
  enum class Kind : std::uint8_t { null, boolean, integer, real, bigint, text, unescaped, array, object };

  Kind kind : 8 = Kind::null;
  std::uint64_t size : 56 = 0;  // of text, in bytes
  union {
    std::int64_t integer = 0;  // boolean, too
    double real;
    const char* text;     // in the text; of bigint the digits with their sign
    std::uint64_t place;  // unescaped: in the scanner's memory. array, object: of what comes behind them on a tape
  };
};
static_assert(sizeof(JsonValue) == 16);

// Digits with an optional sign as two's complement, little endian, in as few bytes as possible. Quadratic time.
std::vector<std::byte> twos_complement_of(std::string_view digits);

class JsonScanner {
 public:
  static constexpr std::size_t deepest = 60;        // nesting of arrays and objects
  static constexpr std::size_t most_digits = 4300;  // of an integer: as in Python, because conversion is quadratic

  using Progress = std::function<void(std::uint64_t bytes)>;

  explicit JsonScanner(Bytes text, Progress progress);

  char next() noexcept;  // the first character of the next value or sign; '\0' at the end
  JsonValue scalar();    // anything but an array or an object
  void skip();           // any value
  void end();            // only space may follow

  // Calls item() for each, which must read the value.
  template <class Item>
  void array(const Item& item) {
    open('[');
    if (!take(']')) {
      do {
        read([&] { item(); });
        ++steps_.back().index;
      } while (take(','));
      close(']');
    }
    steps_.pop_back();
  }

  // Calls member(key) for each, which must read the value. A key can come twice.
  template <class Member>
  void object(const Member& member) {
    open('{');
    steps_.back().index = no_index;
    if (!take('}')) {
      do {
        if (next() != '"') fail("expected a key in quotes");
        steps_.back().key = at_;
        const JsonValue key = string();
        if (!take(':')) fail("expected ':' after the key");
        read([&] { member(key); });
        steps_.back().key = nullptr;
      } while (take(','));
      close('}');
    }
    steps_.pop_back();
  }

  // Calls line() for each line that is not empty, which must read its one value.
  template <class Line>
  void lines(const Line& line) {
    const char* const last = end_;
    steps_.emplace_back();
    while (at_ < last) {
      end_ = line_end(last);
      if (next() != '\0' || at_ < end_) {
        read([&] { line(); });
        end();
        ++steps_.back().index;
      }
      at_ = end_ < last ? end_ + 1 : last;
    }
    end_ = last;
  }

  // The text of a value; valid until forget().
  std::string_view text_of(const JsonValue& value) const noexcept {
    if (value.kind == JsonValue::Kind::unescaped) return std::string_view(unescaped_).substr(value.place, value.size);
    return {value.text, value.size};
  }
  void forget() noexcept { unescaped_.clear(); }

  // Resets the count of depth for the values inside the open arrays and objects.
  void start_depth() noexcept { top_ = steps_.size(); }

  std::uint64_t position() const noexcept { return static_cast<std::uint64_t>(at_ - begin_); }
  [[noreturn]] void fail(const std::string& what, FormatError::Kind kind = FormatError::malformed) const {
    fail_at(at_, what, kind);
  }

 private:
  static constexpr std::uint64_t no_index = UINT64_MAX;  // of what has keys

  // The path to the value that is being read: an item of an array, or a member and the quote before its key.
  struct Step {
    std::uint64_t index = 0;
    const char* key = nullptr;
  };

  template <class Value>
  void read(const Value& value) {
    if (position() >= check_at_) [[unlikely]]
      check_time();
    value();
  }

  bool take(char wanted) noexcept;  // after space
  void open(char bracket);
  void close(char bracket);
  const char* line_end(const char* last) const noexcept;
  void check_time();

  JsonValue word(std::string_view word, JsonValue value);
  JsonValue number();
  std::size_t digits(std::uint64_t& number) noexcept;  // how many
  JsonValue whole(const char* start, std::size_t digits);

  JsonValue string();
  void plain();  // advances to a quote, a backslash or a control character
  JsonValue unescape(const char* start);
  void escape();

  [[noreturn]] void fail_at(const char* place, const std::string& what,
                            FormatError::Kind kind = FormatError::malformed) const;
  std::string path() const;
  std::string_view key_at(const char* quote) const noexcept;

  const char* begin_;
  const char* at_;
  const char* end_;
  std::vector<Step> steps_;
  std::size_t top_ = 0;
  std::string unescaped_;

  Progress progress_;
  std::uint64_t check_at_ = 0;
  std::chrono::steady_clock::time_point reported_ = std::chrono::steady_clock::now();
};

}  // namespace onecopy::records
