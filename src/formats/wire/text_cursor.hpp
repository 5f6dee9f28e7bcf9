// A place in untrusted text that moves forward: what the readers of JSON and of Python literals share.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>
#include <system_error>

#include "onecopy/base/error.hpp"

namespace onecopy {

constexpr bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }
constexpr bool is_space(char c) noexcept { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

class TextCursor {
 public:
  // `name` begins each message: a literal. `begin`: of the text in its file, for the offsets of errors; empty: the text
  // does not lie in a file as it is.
  TextCursor(std::string_view name, std::string_view text, std::optional<std::uint64_t> begin) noexcept
      : name_(name), text_(text), begin_(begin) {}

  std::size_t position() const noexcept { return at_; }

  // The next character that is not space; '\0' at the end.
  char next() noexcept {
    while (at_ < text_.size() && is_space(text_[at_])) ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }

  bool take(std::string_view wanted) noexcept {  // behind space
    (void)next();
    if (!text_.substr(at_).starts_with(wanted)) return false;
    at_ += wanted.size();
    return true;
  }

  void expect(std::string_view wanted) {
    if (!take(wanted)) fail(FormatError::malformed, "expected '", wanted, "'");
  }

  // A non-negative integer below 2^64.
  std::uint64_t integer() {
    if (!is_digit(next())) fail(FormatError::malformed, "expected a non-negative integer");
    const auto digits = text_.substr(at_);
    if (digits.size() > 1 && digits[0] == '0' && is_digit(digits[1]))
      fail(FormatError::malformed, "the number has a leading zero");
    std::uint64_t number = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    if (error != std::errc{}) fail(FormatError::malformed, "the number exceeds 64 bits");
    at_ += static_cast<std::size_t>(end - digits.data());
    return number;
  }

  // Only space may follow.
  void end() {
    (void)next();
    if (at_ != text_.size()) fail(FormatError::malformed, "unexpected text after the end");
  }

  template <class... Parts>
  [[noreturn]] void fail(FormatError::Kind kind, const Parts&... what) const {
    const std::uint64_t place = begin_.value_or(0) + at_;
    throw FormatError(kind, concat(name_, " at byte ", place, ": ", what...),
                      begin_ ? std::optional(place) : std::nullopt);
  }

 protected:
  std::string_view name_;
  std::string_view text_;
  std::optional<std::uint64_t> begin_;
  std::size_t at_ = 0;
};

}  // namespace onecopy
