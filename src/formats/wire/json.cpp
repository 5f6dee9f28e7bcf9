#include "formats/wire/json.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <cstring>

#include "onecopy/base/error.hpp"

namespace onecopy::json {
namespace {

constexpr bool is_plain(char c) noexcept { return static_cast<unsigned char>(c) >= 0x20 && c != '"' && c != '\\'; }

constexpr bool is_continuation(unsigned c) noexcept { return (c & 0xC0U) == 0x80U; }

// The length of the UTF-8 sequence at the start of `text`, or 0: overlong forms, surrogates and numbers over U+10FFFF
// are mistakes (RFC 3629).
std::size_t sequence_length(std::string_view text) noexcept {
  const auto at = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U; };
  const unsigned first = at(0);
  const unsigned second = at(1);
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return is_continuation(second) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF) {
    const bool overlong = first == 0xE0 && second < 0xA0;
    const bool surrogate = first == 0xED && second > 0x9F;
    return is_continuation(second) && is_continuation(at(2)) && !overlong && !surrogate ? 3 : 0;
  }
  if (first >= 0xF0 && first <= 0xF4) {
    const bool overlong = first == 0xF0 && second < 0x90;
    const bool too_large = first == 0xF4 && second > 0x8F;
    return is_continuation(second) && is_continuation(at(2)) && is_continuation(at(3)) && !overlong && !too_large ? 4
                                                                                                                  : 0;
  }
  return 0;
}

void append_utf8(std::string& into, std::uint32_t code) {
  const auto put = [&](std::uint32_t byte) { into.push_back(static_cast<char>(byte)); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0 | (code >> 6U));
    put(0x80 | (code & 0x3FU));
  } else if (code < 0x10000) {
    put(0xE0 | (code >> 12U));
    put(0x80 | ((code >> 6U) & 0x3FU));
    put(0x80 | (code & 0x3FU));
  } else {
    put(0xF0 | (code >> 18U));
    put(0x80 | ((code >> 12U) & 0x3FU));
    put(0x80 | ((code >> 6U) & 0x3FU));
    put(0x80 | (code & 0x3FU));
  }
}

}  // namespace

Escape read_escape(std::string_view text, std::string& into) {
  constexpr std::string_view names = "\"\\/bfnrt";
  constexpr std::string_view meanings = "\"\\/\b\f\n\r\t";
  constexpr auto half = "an unpaired surrogate, which UTF-8 cannot represent";
  std::size_t at = std::min<std::size_t>(2, text.size());  // behind the backslash and a letter
  const char letter = at == 2 ? text[1] : '\0';
  if (const auto found = names.find(letter); found != std::string_view::npos) {
    into.push_back(meanings[found]);
    return {at};
  }
  if (letter != 'u') return {at, "an unknown escape sequence"};
  const auto four_hex_digits = [&](std::uint32_t& code) {
    const auto digits = text.substr(at, 4);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), code, 16);
    const bool are_four = digits.size() == 4 && error == std::errc{} && end == digits.data() + 4;
    at += are_four ? 4 : 0;
    return are_four;
  };
  std::uint32_t code = 0;
  if (!four_hex_digits(code)) return {at, "\\u needs four hexadecimal digits"};
  if (code >= 0xDC00 && code <= 0xDFFF) return {at, half};
  if (code >= 0xD800 && code <= 0xDBFF) {
    if (text.substr(at, 2) != "\\u") return {at, half};
    at += 2;
    std::uint32_t low = 0;
    if (!four_hex_digits(low)) return {at, "\\u needs four hexadecimal digits"};
    if (low < 0xDC00 || low > 0xDFFF) return {at, half};
    code = 0x10000 + ((code - 0xD800) << 10U) + (low - 0xDC00);
  }
  append_utf8(into, code);
  return {at};
}

bool is_utf8(std::string_view text) noexcept {
  while (!text.empty()) {
    std::uint64_t word = 0;
    if (text.size() >= sizeof word) {
      std::memcpy(&word, text.data(), sizeof word);
      if ((word & 0x8080808080808080U) == 0) {  // eight characters of ASCII
        text.remove_prefix(sizeof word);
        continue;
      }
    }
    const std::size_t length = sequence_length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (is_plain(c)) {
      out.push_back(c);
    } else if (c == '"' || c == '\\') {
      out.push_back('\\');
      out.push_back(c);
    } else {
      std::array<char, 8> escape{};
      std::snprintf(escape.data(), escape.size(), "\\u%04x", static_cast<unsigned char>(c));
      out += escape.data();
    }
  }
  out.push_back('"');
  return out;
}

std::string describe(std::string_view name) {
  constexpr std::size_t longest = 200;
  std::size_t size = std::min(name.size(), longest);
  while (size < name.size() && size > 0 && is_continuation(static_cast<unsigned char>(name[size]))) --size;
  const std::string text = quoted(name.substr(0, size));
  return "'" + text.substr(1, text.size() - 2) + (size < name.size() ? "...'" : "'");
}

std::string_view Reader::string() {
  expect("\"");
  const std::size_t start = at_;
  while (at_ < text_.size() && is_plain(text_[at_])) ++at_;
  if (at_ >= text_.size()) fail(FormatError::truncated, "the string is not terminated");
  if (text_[at_] == '"') return text_.substr(start, at_++ - start);
  return unescape(start);
}

std::string_view Reader::unescape(std::size_t start) {
  std::string& out = unescaped_.emplace_back(text_.substr(start, at_ - start));
  for (; at_ < text_.size() && text_[at_] != '"';) {
    if (is_plain(text_[at_])) {
      out.push_back(text_[at_++]);
      continue;
    }
    if (text_[at_] != '\\') fail(FormatError::malformed, "the string contains a control character");
    const Escape read = read_escape(text_.substr(at_), out);
    at_ += read.size;
    if (read.mistake != nullptr) fail(FormatError::malformed, read.mistake);
  }
  if (at_ >= text_.size()) fail(FormatError::truncated, "the string is not terminated");
  ++at_;
  return out;
}

std::uint64_t Reader::integer() {
  const std::uint64_t number = TextCursor::integer();
  if (at_ < text_.size() && std::string_view(".eE").find(text_[at_]) != std::string_view::npos)
    fail(FormatError::malformed, "expected an integer");
  return number;
}

void Reader::skip() {
  const std::size_t kept = unescaped_.size();
  const auto forget = [&] { unescaped_.resize(kept); };  // a list of ignored texts could be large
  switch (next()) {
    case '{':
      return object([&](std::string_view) {
        forget();
        skip();
      });
    case '[': return array([this] { skip(); });
    case '"': (void)string(); return forget();
    default:
      if (!take("true") && !take("false") && !take("null")) skip_number();
  }
}

bool Reader::digits() noexcept {
  const std::size_t start = at_;
  while (at_ < text_.size() && is_digit(text_[at_])) ++at_;
  return at_ != start;
}

void Reader::skip_number() {
  const auto next_is = [this](std::string_view any) {
    return at_ < text_.size() && any.find(text_[at_]) != std::string_view::npos;
  };
  if (next_is("-")) ++at_;
  const std::size_t start = at_;
  if (!digits()) fail(FormatError::malformed, "expected a value");
  if (text_[start] == '0' && at_ - start > 1) fail(FormatError::malformed, "the number has a leading zero");
  if (next_is(".")) {
    ++at_;
    if (!digits()) fail(FormatError::malformed, "the fraction has no digits");
  }
  if (next_is("eE")) {
    ++at_;
    if (next_is("+-")) ++at_;
    if (!digits()) fail(FormatError::malformed, "the exponent has no digits");
  }
}

}  // namespace onecopy::json
