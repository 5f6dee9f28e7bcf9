#include "records/json/json_scanner.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstring>
#include <limits>
#include <utility>

#include "formats/wire/json.hpp"
#include "onecopy/base/error.hpp"

namespace onecopy::records {
namespace {

using Kind = JsonValue::Kind;

constexpr std::uint64_t each_byte = 0x0101010101010101;
constexpr std::uint64_t high_bits = 0x80 * each_byte;

constexpr bool is_of_name(char c) noexcept {
  return is_digit(c) || c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
constexpr bool is_plain(char c) noexcept { return static_cast<unsigned char>(c) >= 0x20 && c != '"' && c != '\\'; }

// High bits of the bytes that end a run of plain characters: correct up to the first of them, which is all that is
// used.
constexpr std::uint64_t ends_of_plain(std::uint64_t word) noexcept {
  const auto zeros = [](std::uint64_t bytes) { return (bytes - each_byte) & ~bytes & high_bits; };
  const std::uint64_t controls = (word - 0x20 * each_byte) & ~word & high_bits;
  return zeros(word ^ ('"' * each_byte)) | zeros(word ^ ('\\' * each_byte)) | controls;
}

JsonValue integer_value(std::int64_t number, Kind kind = Kind::integer) noexcept {
  JsonValue value;
  value.kind = kind;
  value.integer = number;
  return value;
}

JsonValue real_value(double number) noexcept {
  JsonValue value;
  value.kind = Kind::real;
  value.real = number;
  return value;
}

JsonValue text_value(const char* text, std::size_t size, Kind kind = Kind::text) noexcept {
  JsonValue value;
  value.kind = kind;
  value.size = size & ((std::uint64_t{1} << 56U) - 1);
  value.text = text;
  return value;
}

// The length of the valid UTF-8 prefix of a text that is not UTF-8.
std::size_t valid_start(std::string_view text) noexcept {
  std::size_t valid = 0;
  for (std::size_t size = 1; size <= 4; ++size)
    if (valid + size <= text.size() && json::is_utf8(text.substr(valid, size))) valid += std::exchange(size, 0);
  return valid;
}

// from_chars does not distinguish overflow from underflow: this is n of the number 0.d... * 10^n.
std::int64_t decimal_exponent(std::string_view number) noexcept {
  const auto mantissa = number.substr(0, number.find_first_of("eE"));
  const auto first = static_cast<std::int64_t>(std::min(mantissa.find_first_of("123456789"), mantissa.size()));
  const auto point = static_cast<std::int64_t>(std::min(mantissa.find('.'), mantissa.size()));
  const std::int64_t leading = point > first ? point - first : point + 1 - first;
  auto exponent = number.substr(mantissa.size());
  if (exponent.empty()) return leading;
  exponent.remove_prefix(exponent.size() > 1 && exponent[1] == '+' ? 2 : 1);
  std::int64_t power = 0;
  const auto [end, error] = std::from_chars(exponent.data(), exponent.data() + exponent.size(), power);
  constexpr std::int64_t beyond_all = std::int64_t{1} << 62U;
  if (error == std::errc::result_out_of_range) power = beyond_all;
  power = std::clamp(power, -beyond_all, beyond_all);
  return leading + (exponent.starts_with('-') ? -std::abs(power) : power);
}

// The nearest double, as Python's float(); infinity if the number is too large.
double real_of(std::string_view number) noexcept {
  double value = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
  if (error != std::errc::result_out_of_range) return value;
  value = decimal_exponent(number) > 0 ? std::numeric_limits<double>::infinity() : 0.0;
  return number.front() == '-' ? -value : value;
}

// Both factors are exact, so the quotient is the nearest real.
constexpr std::size_t exact_digits = 15;
constexpr std::array<double, exact_digits + 1> powers_of_ten{1e0, 1e1, 1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                                             1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15};

constexpr std::uint64_t check_bytes = std::uint64_t{64} << 10U;
constexpr auto check_every = std::chrono::milliseconds(50);

}  // namespace

JsonScanner::JsonScanner(Bytes text, Progress progress)
    : begin_(reinterpret_cast<const char*>(text.data())),  // NOLINT: bytes seen as text
      at_(begin_),
      end_(begin_ + text.size()),
      progress_(std::move(progress)) {
  const std::string_view start(begin_, std::min<std::size_t>(text.size(), 3));
  if (start == "\xEF\xBB\xBF")
    fail("the text begins with a byte order mark (BOM): save it as UTF-8 without one", FormatError::unsupported);
  if (start.starts_with("\xFE\xFF") || start.starts_with("\xFF\xFE"))
    fail("the text begins with a byte order mark (BOM) of UTF-16: save it as UTF-8", FormatError::unsupported);
}

char JsonScanner::next() noexcept {
  while (at_ < end_ && is_space(*at_)) ++at_;
  return at_ < end_ ? *at_ : '\0';
}

bool JsonScanner::take(char wanted) noexcept {
  if (next() != wanted || at_ == end_) return false;
  ++at_;
  return true;
}

void JsonScanner::open(char bracket) {
  if (!take(bracket)) fail(concat("expected '", bracket, "'"));
  if (steps_.size() >= top_ + deepest)
    fail_at(at_ - 1, concat("nested more than ", deepest, " deep"), FormatError::too_costly);
  steps_.emplace_back();
}

void JsonScanner::close(char bracket) {
  if (!take(bracket)) fail(concat("expected ',' or '", bracket, "'"));
}

void JsonScanner::end() {
  if (next() != '\0' || at_ < end_) fail("unexpected text after the value");
}

const char* JsonScanner::line_end(const char* last) const noexcept {
  const void* const found = std::memchr(at_, '\n', static_cast<std::size_t>(last - at_));
  return found != nullptr ? static_cast<const char*>(found) : last;
}

void JsonScanner::check_time() {
  check_at_ = position() + check_bytes;
  const auto now = std::chrono::steady_clock::now();
  if (!progress_ || now - reported_ < check_every) return;
  reported_ = now;
  progress_(position());
}

void JsonScanner::skip() {
  switch (next()) {
    case '[': return array([this] { skip(); });
    case '{':
      return object([this](const JsonValue& /*key*/) {
        forget();
        skip();
      });
    default: static_cast<void>(scalar()); forget();
  }
}

JsonValue JsonScanner::scalar() {
  switch (next()) {
    case '"': return string();
    case 't': return word("true", integer_value(1, Kind::boolean));
    case 'f': return word("false", integer_value(0, Kind::boolean));
    case 'n': return word("null", {});
    case 'N': return word("NaN", real_value(std::numeric_limits<double>::quiet_NaN()));
    case 'I': return word("Infinity", real_value(std::numeric_limits<double>::infinity()));
    default: return number();
  }
}

JsonValue JsonScanner::word(std::string_view word, JsonValue value) {
  if (!std::string_view(at_, static_cast<std::size_t>(end_ - at_)).starts_with(word)) fail("expected a value");
  at_ += word.size();
  return value;
}

// --- numbers ---------------------------------------------------------------------------------------------------

std::size_t JsonScanner::digits(std::uint64_t& number) noexcept {
  const char* const start = at_;
  for (; at_ < end_ && is_digit(*at_); ++at_) number = number * 10 + static_cast<std::uint64_t>(*at_ - '0');
  return static_cast<std::size_t>(at_ - start);
}

JsonValue JsonScanner::number() {
  const char* const start = at_;
  const auto next_is = [this](auto... any) { return at_ < end_ && ((*at_ == any) || ...); };
  if (next_is('-')) ++at_;
  if (at_ != start && next_is('I')) return word("Infinity", real_value(-std::numeric_limits<double>::infinity()));
  const char* const first = at_;
  std::uint64_t mantissa = 0;
  const std::size_t before = digits(mantissa);
  if (before == 0) fail_at(start, start == end_ ? "expected a value, found the end of the text" : "expected a value");
  if (before > 1 && *first == '0') fail_at(start, "the number has a leading zero");
  std::size_t behind = 0;
  const bool has_point = next_is('.');
  if (has_point) {
    ++at_;
    behind = digits(mantissa);
    if (behind == 0) fail("the fraction has no digits");
  }
  const bool has_exponent = next_is('e', 'E');
  if (has_exponent) {
    ++at_;
    if (next_is('+', '-')) ++at_;
    std::uint64_t exponent = 0;
    if (digits(exponent) == 0) fail("the exponent has no digits");
  }
  if (!has_point && !has_exponent) return whole(start, before);
  if (has_exponent || before + behind > exact_digits)
    return real_value(real_of({start, static_cast<std::size_t>(at_ - start)}));
  const double magnitude = static_cast<double>(mantissa) / powers_of_ten.at(behind);
  return real_value(*start == '-' ? -magnitude : magnitude);
}

JsonValue JsonScanner::whole(const char* start, std::size_t digits) {
  std::int64_t number = 0;
  if (std::from_chars(start, at_, number).ec == std::errc{}) return integer_value(number);
  if (digits > most_digits)
    fail_at(start, concat("the integer has ", digits, " digits, more than the maximum of ", most_digits),
            FormatError::too_costly);
  return text_value(start, static_cast<std::size_t>(at_ - start), Kind::bigint);
}

// --- strings ---------------------------------------------------------------------------------------------------

JsonValue JsonScanner::string() {
  const char* const start = ++at_;
  plain();
  if (at_ == end_ || *at_ != '"') return unescape(start);
  return text_value(start, static_cast<std::size_t>(at_++ - start));
}

void JsonScanner::plain() {
  const char* const start = at_;
  std::uint64_t seen = 0;
  std::uint64_t word = 0;
  bool found = false;
  while (!found && static_cast<std::size_t>(end_ - at_) >= sizeof word) {
    std::memcpy(&word, at_, sizeof word);
    seen |= word;
    const std::uint64_t ends = ends_of_plain(word);
    found = ends != 0;
    at_ += found ? std::countr_zero(ends) / 8 : static_cast<int>(sizeof word);
  }
  for (; at_ < end_ && is_plain(*at_); ++at_) seen |= static_cast<unsigned char>(*at_);
  if ((seen & high_bits) == 0) return;
  const std::string_view run(start, static_cast<std::size_t>(at_ - start));
  if (!json::is_utf8(run)) fail_at(start + valid_start(run), "invalid UTF-8");
}

JsonValue JsonScanner::unescape(const char* start) {
  const std::size_t place = unescaped_.size();
  unescaped_.append(start, at_);
  while (at_ < end_ && *at_ != '"') {
    if (*at_ != '\\') fail("the string contains a control character");
    escape();
    const char* const run = at_;
    plain();
    unescaped_.append(run, at_);
  }
  if (at_ == end_) fail_at(start - 1, "the string is not terminated", FormatError::truncated);
  ++at_;
  JsonValue value = text_value(nullptr, unescaped_.size() - place, Kind::unescaped);
  value.place = place;
  return value;
}

void JsonScanner::escape() {
  const auto read = json::read_escape({at_, static_cast<std::size_t>(end_ - at_)}, unescaped_);
  if (read.mistake != nullptr) fail_at(at_, read.mistake);
  at_ += read.size;
}

// --- errors ----------------------------------------------------------------------------------------------------

void JsonScanner::fail_at(const char* place, const std::string& what, FormatError::Kind kind) const {
  const std::string_view before(begin_, static_cast<std::size_t>(place - begin_));
  const auto lines = std::ranges::count(before, '\n');
  const auto line = before.substr(before.rfind('\n') + 1);
  const auto column =
      std::ranges::count_if(line, [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; });
  const std::string where = path();
  throw FormatError(kind,
                    concat("JSON at byte ", before.size(), " (line ", lines + 1, ", column ", column + 1,
                           (where.empty() ? ")" : ", in " + where + ")"), ": ", what),
                    before.size());
}

// The path of the value that is being read: annotations[12].bbox[3]. Keys as written in the text.
std::string JsonScanner::path() const {
  std::string path;
  for (const auto& step : steps_) {
    if (step.key != nullptr) {
      const std::string_view key = key_at(step.key);
      const bool is_name = !key.empty() && std::ranges::all_of(key, is_of_name);
      path += is_name ? (path.empty() ? "" : ".") + std::string(key) : "[\"" + std::string(key) + "\"]";
    } else if (step.index != no_index) {
      path += "[" + std::to_string(step.index) + "]";
    }
  }
  return path;
}

// The text behind a quote, as far as it fits into a message.
std::string_view JsonScanner::key_at(const char* quote) const noexcept {
  constexpr std::ptrdiff_t longest = 100;
  const char* const start = quote + 1;
  const char* stop = start;
  while (end_ - stop > 1 && stop - start < longest && (is_plain(*stop) || *stop == '\\')) stop += *stop == '\\' ? 2 : 1;
  const std::string_view key(start, static_cast<std::size_t>(stop - start));
  return key.substr(0, valid_start(key));
}

// --- integers of any length ------------------------------------------------------------------------------------

std::vector<std::byte> twos_complement_of(std::string_view digits) {
  const bool negative = digits.front() == '-';
  if (negative) digits.remove_prefix(1);
  std::vector<std::uint32_t> words{0};  // the lowest first
  while (!digits.empty()) {
    const auto some = digits.substr(0, std::min<std::size_t>(9, digits.size()));
    digits.remove_prefix(some.size());
    std::uint64_t carry = 0;
    std::uint64_t factor = 1;
    for (const char c : some) {
      carry = carry * 10 + static_cast<std::uint64_t>(c - '0');
      factor *= 10;
    }
    for (auto& word : words) {
      carry += factor * word;
      word = static_cast<std::uint32_t>(carry);
      carry >>= 32U;
    }
    if (carry != 0) words.push_back(static_cast<std::uint32_t>(carry));
  }
  words.push_back(0);  // for the sign
  bool borrow = negative;
  std::vector<std::byte> bytes;
  for (std::uint32_t word : words) {
    if (negative) word = ~word + (borrow ? 1U : 0U);
    borrow = borrow && word == 0;
    for (int i = 0; i < 4; ++i, word >>= 8U) bytes.push_back(static_cast<std::byte>(word));
  }
  const auto sign = [](std::byte byte) { return (byte & std::byte{0x80}) != std::byte{0}; };
  while (bytes.size() > 1 && bytes.back() == (negative ? std::byte{0xFF} : std::byte{0}) &&
         sign(bytes[bytes.size() - 2]) == negative)
    bytes.pop_back();
  return bytes;
}

}  // namespace onecopy::records
