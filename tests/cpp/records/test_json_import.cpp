// JSON text becomes the rows it spells, or is refused with its place. The oracle of values is Python's json.loads, in
// tests/python/records/test_json_import.py; here is what it cannot show.
#include "onecopy/records/json_import.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "naive_reader.hpp"
#include "onecopy/base/error.hpp"
#include "onecopy/records/builder.hpp"
#include "records/json/json_numbers.hpp"
#include "scratch_folder.hpp"

namespace onecopy {
namespace {

using records::Builder;
using records::import_json;
using records::JsonOptions;

std::string rows_of(std::string_view text, const JsonOptions& options = {}) {
  const testing::ScratchFolder folder;
  const std::string container = options.pairs ? "dict" : "list";
  Builder builder({.spool = folder.path(), .container = container, .metadata = {}});
  const auto count = import_json(std::as_bytes(std::span(text)), builder.rows(), options);
  CHECK(count == builder.rows().length());
  builder.save(folder / "rows");
  return testing::NaiveReader(ArrayFile::open(folder / "rows")).rows();
}

std::string refusal_of(std::string_view text, const JsonOptions& options = {}) {
  const testing::ScratchFolder folder;
  Builder builder({.spool = folder.path(), .container = "list", .metadata = {}});
  try {
    import_json(std::as_bytes(std::span(text)), builder.rows(), options);
  } catch (const FormatError& error) {
    return error.what();
  }
  return "taken";
}

JsonOptions at(std::vector<std::string> path) {
  return {.path = std::move(path), .lines = false, .pairs = false, .progress = {}};
}
const JsonOptions lines{.path = {}, .lines = true, .pairs = false, .progress = {}};
const JsonOptions pairs{.path = {}, .lines = false, .pairs = true, .progress = {}};

}  // namespace

TEST_CASE("every kind of value becomes a row") {
  CHECK(rows_of("[]") == "[]");
  CHECK(rows_of(" [ null , true,false,\"\" ] \n") == "[None, True, False, '']");
  CHECK(rows_of("[0, -0, 7, -9223372036854775808]") == "[0, 0, 7, -9223372036854775808]");
  CHECK(rows_of("[0.5, -0.0, 1e2, 1E-2, 2]") == "[0.5f, -0f, 100f, 0.01f, 2]");
  CHECK(rows_of("[[], [1, [\"x\", 2.5]], {}]") == "[[], [1, ['x', 2.5f]], {}]");
  CHECK(rows_of(R"([{"a": 1, "b": {"c": [true]}}, {"b": null}])") == "[{a: 1, b: {c: [True]}}, {b: None}]");
  CHECK(rows_of(R"(["\"\\\/\b\f\n\r\t\u0041\u00e9\uD83D\uDE00z"])") == "['\"\\/\b\f\n\r\tA\u00e9\U0001F600z']");
}

TEST_CASE("a key that comes twice has its first place and its last value, however large either is") {
  CHECK(rows_of(R"([{"a": [1, {"x": 2}], "b": 2, "a": {"y": 3}, "c": 4, "a": 5}])") == "[{a: 5, b: 2, c: 4}]");
  CHECK(rows_of(R"([{"\u0061": 1, "a": 2}, {"a": 3, "\u0061": {"a": 1, "a": 4}}])") == "[{a: 2}, {a: {a: 4}}]");
}

TEST_CASE("what has too many keys for a record is a map") {
  std::string text = "[{";
  for (int i = 0; i < 1025; ++i) text += (i > 0 ? ",\"" : "\"") + std::to_string(i) + "\":" + std::to_string(i);
  const auto rows = rows_of(text + "}]");
  CHECK(rows.starts_with("[map['0': 0, '1': 1,"));
  CHECK(rows.ends_with("'1024': 1024]]"));
}

TEST_CASE("rows are found at the end of a path, and what is beside it is skipped") {
  const std::string text = R"({"no": {"items": [0]}, "data": {"\u0078": [], "items": [1, 2], "more": "]"}, "z": [[]]})";
  CHECK(rows_of(text, at({"data", "items"})) == "[1, 2]");
  CHECK(
      refusal_of(text, at({"data", "rows"})).ends_with("no member 'rows' in the object; it has 'x', 'items', 'more'"));
  CHECK(refusal_of(text, at({"data"}))
            .ends_with("rows are the items of an array: give the path to one of its members"
                       ", 'x', 'items', 'more'"));
  CHECK(refusal_of(text, at({"no", "items", "x"})).starts_with("JSON at byte 17 (line 1, column 18, in no.items)"));
  CHECK(refusal_of(R"({"a": [1], "a": [2]})", at({"a"})).ends_with("the member with the rows comes twice"));
  CHECK(refusal_of(R"({"a": [1], "b": tru})", at({"a"})).ends_with("in b): expected a value"));
}

TEST_CASE("the members of an object are the rows of a dict") {
  CHECK(rows_of(R"({"a": [{"x": 1}], "\u00e9": 2})", pairs) == "[('a',[{x: 1}],), ('\u00e9',2,)]");
  CHECK(rows_of("{}", pairs) == "[]");
  CHECK(refusal_of("[]", pairs).ends_with("expected an object, whose members are the rows"));
}

TEST_CASE("of lines every one that is not empty is a row") {
  CHECK(rows_of("", lines) == "[]");
  CHECK(rows_of("\n \r\n", lines) == "[]");
  CHECK(rows_of("1\n\r\n{\"a\": [2]}\r\n  \n\"x\"", lines) == "[1, {a: [2]}, 'x']");
  CHECK(refusal_of("1\n2 3\n", lines) == "JSON at byte 4 (line 2, column 3, in [1]): text behind the end of the value");
  CHECK(refusal_of("[1,\n2]\n", lines).starts_with("JSON at byte 3 (line 1, column 4, in [0][1])"));
}

TEST_CASE("what is no JSON is refused, with its place") {
  const std::vector<std::pair<std::string_view, std::string_view>> refused{
      {"", "JSON at byte 0 (line 1, column 1): expected an array, whose items are the rows"},
      {"\xEF\xBB\xBF[]", "byte order mark"},
      {"\xFF\xFE[\0]\0", "UTF-16"},
      {"[1", "JSON at byte 2 (line 1, column 3, in [1]): expected ',' or ']'"},
      {"[1,", "the end, where a value is expected"},
      {"[1,]", "JSON at byte 3 (line 1, column 4, in [1]): expected a value"},
      {"[,]", "expected a value"},
      {"[1 2]", "expected ',' or ']'"},
      {"[1}", "expected ',' or ']'"},
      {"[] []", "text behind the end"},
      {"[1]x", "JSON at byte 3 (line 1, column 4): text behind the end of the value"},
      {"[value]", "expected a value"},
      {"[nul]", "expected a value"},
      {"[True]", "expected a value"},
      {"[nan]", "expected a value"},
      {"['a']", "expected a value"},
      {"[01]", "leading zero"},
      {"[-01]", "leading zero"},
      {"[-]", "expected a value"},
      {"[+1]", "expected a value"},
      {"[.5]", "expected a value"},
      {"[1.]", "a fraction needs digits"},
      {"[1.e5]", "a fraction needs digits"},
      {"[1e]", "an exponent needs digits"},
      {"[1e+]", "an exponent needs digits"},
      {"[-Inf]", "expected a value"},
      {"[0x10]", "expected ',' or ']'"},
      {"[1_000]", "expected ',' or ']'"},
      {"[\"a]", "JSON at byte 1 (line 1, column 2, in [0]): a string that does not end"},
      {"[\"a\n\"]", "a control character in a string"},
      {"[\"\\x\"]", "an unknown escape sequence"},
      {"[\"\\", "an unknown escape sequence"},
      {"[\"\\u12\"]", "\\u needs four hexadecimal digits"},
      {"[\"\\u-123\"]", "\\u needs four hexadecimal digits"},
      {"[\"abcdefgh\\ud800\"]", "JSON at byte 10 (line 1, column 11, in [0]): half of a surrogate pair"},
      {"[\"\\udc00\"]", "half of a surrogate pair"},
      {"[\"\\ud800\\u0041\"]", "half of a surrogate pair"},
      {"[\"\\ud800x\"]", "half of a surrogate pair"},
      {"[{1: 2}]", "in [0]): expected a key in quotes"},
      {"[{\"a\" 1}]", "expected ':' behind the key"},
      {"[{\"a\": 1,}]", "expected a key in quotes"},
      {"[{\"a\": 1 \"b\": 2}]", "expected ',' or '}'"},
      {"[{\"a b\": {\"c\": [0, tru]}}]", "in [0][\"a b\"].c[1]): expected a value"},
      {"[\n{\"\xC3\xA9\": [1,\n \"\xC3\xA9\", x]}]", "JSON at byte 20 (line 3, column 7, in [0][\"\xC3\xA9\"][2])"},
      {"[\"abc\xFF\"]", "JSON at byte 5 (line 1, column 6, in [0]): no UTF-8"},
      {"[\"\xC3\xA9\xC0\x80\"]", "JSON at byte 4"},
      {"[\"\\n\xED\xA0\x80\"]", "JSON at byte 4"},
      {"[\"12345678901234567\xF0\x9F\"]", "no UTF-8"},
      {"[\xC2\xA0]", "expected a value"},
  };
  for (const auto& [text, message] : refused) {
    CAPTURE(text);
    const std::string said = refusal_of(text);
    CAPTURE(said);
    CHECK(said.find(message) != std::string::npos);
  }
}

TEST_CASE("nesting is limited, and counts from the row") {
  const auto nested = [](std::size_t times, std::string_view open, std::string_view close) {
    std::string text;
    for (std::size_t i = 0; i < times; ++i) text += open;
    text += "0";
    for (std::size_t i = 0; i < times; ++i) text += close;
    return text;
  };
  CHECK(rows_of("[" + nested(60, "[", "]") + "]") == "[" + nested(60, "[", "]") + "]");
  CHECK(refusal_of("[" + nested(61, "[", "]") + "]").ends_with("nested deeper than 60"));
  CHECK(rows_of(nested(30, "[{\"a\":", "}]"), lines) == "[" + nested(30, "[{a: ", "}]") + "]");
  CHECK(refusal_of("[" + nested(30, "[{\"a\":", "}]") + "]", lines).ends_with("nested deeper than 60"));
  CHECK(refusal_of(nested(100000, "[", "]")).ends_with("nested deeper than 60"));
  CHECK(refusal_of(nested(100000, "{\"a\":", "}"), at({"b"})).ends_with("nested deeper than 60"));
}

TEST_CASE("a text that is cut off anywhere is refused") {
  const std::string text = R"({"skip": [{"a": [1.5, "x\u00e9"]}], "rows": [{"b": -12e3, "c": null}, [true]]})";
  CHECK(rows_of(text, at({"rows"})) == "[{b: -12000f, c: None}, [True]]");
  for (std::size_t size = 0; size < text.size(); ++size) {
    CAPTURE(size);
    CHECK(refusal_of(std::string_view(text).substr(0, size), at({"rows"})) != "taken");
  }
}

TEST_CASE("reals are the nearest ones, and infinite or zero beyond") {
  std::mt19937_64 random(1);
  std::vector<std::string> numbers{"1e308",
                                   "1e309",
                                   "-1e309",
                                   "1e-323",
                                   "1e-324",
                                   "-1e-400",
                                   "0e999999999999999999999",
                                   "0.0e-9",
                                   "1e99999999999999999999",
                                   "1e-99999999999999999999",
                                   "-0.0e+7",
                                   "9007199254740993.0",
                                   "123456789012345.678"};
  numbers.push_back("0." + std::string(400, '0') + "1e500");
  numbers.push_back("0." + std::string(400, '0') + "1");
  numbers.push_back(std::string(400, '9') + ".5");
  numbers.push_back(std::string(400, '9') + ".5e-395");
  for (int i = 0; i < 20000; ++i) {
    std::array<char, 64> text{};
    const auto bits = random();
    double value = 0;
    std::memcpy(&value, &bits, sizeof value);
    if (value - value == 0)  // finite
      numbers.emplace_back(text.data(),
                           static_cast<std::size_t>(std::snprintf(text.data(), text.size(), "%.*e",
                                                                  static_cast<int>(random() % 20) + 1, value)));
    numbers.push_back(std::to_string(random() % 1000000) + "." + std::to_string(random() % 10000000));
  }
  std::string text = "[";
  std::string wanted = "[";
  for (const auto& number : numbers) {
    std::array<char, 64> spelt{};
    std::snprintf(spelt.data(), spelt.size(), "%.17gf", std::strtod(number.c_str(), nullptr));
    text += (text.size() > 1 ? "," : "") + number;
    wanted += (wanted.size() > 1 ? ", " : "") + std::string(spelt.data());
  }
  CHECK((rows_of(text + "]") == wanted + "]"));
}

TEST_CASE("integers beyond 64 bits are two's complement in as few bytes as it takes") {
  const auto hexadecimal = [](std::string_view digits) {
    std::string text;
    for (const auto byte : records::twos_complement_of(digits)) {
      std::array<char, 3> two{};
      std::snprintf(two.data(), two.size(), "%02x", std::to_integer<unsigned>(byte));
      text.insert(0, two.data());
    }
    return text;
  };
  CHECK(hexadecimal("0") == "00");
  CHECK(hexadecimal("127") == "7f");
  CHECK(hexadecimal("128") == "0080");
  CHECK(hexadecimal("-128") == "80");
  CHECK(hexadecimal("-129") == "ff7f");
  CHECK(hexadecimal("4294967296") == "0100000000");
  CHECK(hexadecimal("-4294967296") == "ff00000000");
  CHECK(hexadecimal("9223372036854775808") == "008000000000000000");
  CHECK(hexadecimal("-9223372036854775809") == "ff7fffffffffffffff");
  CHECK(hexadecimal("-18446744073709551616") == "ff0000000000000000");
  CHECK(rows_of("[9223372036854775808]") == "[bigint:000000000000008000]");
  CHECK(rows_of("[9223372036854775807]") == "[9223372036854775807]");
  CHECK(rows_of("[" + std::string(4300, '1') + "]").starts_with("[bigint:"));
  CHECK(refusal_of("[" + std::string(4301, '1') + "]").ends_with("an integer of 4301 digits, and 4300 is the most"));
}

TEST_CASE("progress is reported at the end at least, and its exceptions end the import") {
  std::uint64_t rows = 0;
  std::uint64_t bytes = 0;
  JsonOptions options;
  options.progress = [&](std::uint64_t done, std::uint64_t read) { rows = done, bytes = read; };
  rows_of("[1, 2, 3] ", options);
  CHECK(rows == 3);
  CHECK(bytes == 10);
  options.progress = [](std::uint64_t, std::uint64_t) { throw std::runtime_error("enough"); };
  CHECK_THROWS_WITH_AS(rows_of("[1]", options), "enough", std::runtime_error);
}

}  // namespace onecopy
