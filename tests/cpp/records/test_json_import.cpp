// JSON text becomes the rows it spells, or is refused with its place. The oracle of values is Python's json.loads, in
// tests/python/records/test_json_import.py; here is what it cannot show.
#include "onecopy/records/json_import.hpp"

#include <doctest/doctest.h>

#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "naive_reader.hpp"
#include "onecopy/base/error.hpp"
#include "onecopy/records/builder.hpp"
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

}  // namespace onecopy
