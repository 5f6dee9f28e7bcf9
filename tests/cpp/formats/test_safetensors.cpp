// What a header may be is in tests/hostile/test_round_trips.py, judged by the package safetensors.
#include "formats/checked_size.hpp"
#include "formats/parsing.hpp"
#include "formats/wire/json.hpp"
#include "onecopy/base/error.hpp"
#include "onecopy/formats/safetensors.hpp"
#include "precompiled.hpp"

namespace onecopy {
namespace {

std::string file_of(std::string_view header, std::size_t data_size) {
  std::string file;
  for (unsigned i = 0; i < 8; ++i) file.push_back(static_cast<char>((header.size() >> (8 * i)) & 0xFFU));
  return file.append(header).append(data_size, '\0');
}

}  // namespace

TEST_CASE("elements that fill no whole bytes, and bytes behind the last array, are refused") {
  const auto error_of = [](std::string_view count, std::size_t bytes) {
    const auto header = R"({"a":{"dtype":"F4","data_offsets":[0,1],"shape":[)" + std::string(count) + "]}}";
    return testing::refusal([&] { return safetensors::parse(testing::bytes_of(file_of(header, bytes))); });
  };
  CHECK(error_of("2", 1) == "accepted");
  CHECK(error_of("3", 1) == "inconsistent");
  CHECK(error_of("2", 2).starts_with("inconsistent at "));
}

TEST_CASE("other tools' texts under our name are only texts") {
  for (const std::string_view text : {"", "hello", "{}", R"({\"version\":1})", R"({\"kind\":\"arrays\"})", "[1]"}) {
    const auto header = R"({"__metadata__":{"onecopy":")" + std::string(text) + R"("}})";
    const auto file = file_of(header, 0);
    CHECK(safetensors::parse(testing::bytes_of(file)).kind() == Kind::foreign);
  }
}

TEST_CASE("cut or flipped anywhere, a small file is accepted or refused, never worse") {
  const auto good = file_of(
      R"({"__metadata__":{"k":"v\u00e9"},"a":{"dtype":"BF16","shape":[2,2],"data_offsets":[0,8]},"b":{"dtype":"F4","shape":[4],"data_offsets":[8,10]}})",
      10);
  testing::check_damaged(good, [](Bytes file) { return testing::ranges_of(safetensors::parse(file)); });
}

TEST_CASE("UTF-8 is judged as RFC 3629 does") {
  CHECK(json::is_utf8("plain ascii, longer than eight"));
  CHECK(json::is_utf8("\u00e9\u20ac\U0001F600"));
  for (const std::string_view bad : {"\x80", "\xc3", "\xc0\x80", "\xe0\x80\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80",
                                     "\xf8\x88\x80\x80\x80", "12345678\xff"})
    CHECK(!json::is_utf8(bad));
}

TEST_CASE("nothing is kept of a value that is passed over") {
  constexpr std::string_view text = R"({"\n":"\t","\u0061":["\n",{"\n":{}}]})";
  std::list<std::string> unescaped{"kept"};
  json::Reader reader(text, unescaped);
  reader.skip();
  CHECK_NOTHROW(reader.end());
  CHECK(unescaped == std::list<std::string>{"kept"});
}

TEST_CASE("a name in a message is short, printable and whole") {
  CHECK(json::describe("a'b\"\n") == R"('a'b\"\u000a')");
  CHECK(json::describe(std::string(200, 'n')) == "'" + std::string(200, 'n') + "'");
  CHECK(json::describe(std::string(201, 'n')) == "'" + std::string(200, 'n') + "...'");
  // Cut before a character that would be cut in two, not within it.
  CHECK(json::describe(std::string(199, 'n') + "\u20ac") == "'" + std::string(199, 'n') + "...'");
}

TEST_CASE("quoting and reading a string give it back") {
  std::mt19937_64 random(2);
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (std::uint64_t size = random() % 20; size > 0; --size) text.push_back(static_cast<char>(random() % 128));
    std::list<std::string> unescaped;
    const auto quoted = json::quoted(text);
    json::Reader reader(quoted, unescaped);
    CHECK(reader.string() == text);
    CHECK_NOTHROW(reader.end());
  }
}

TEST_CASE("checked_size agrees with 128-bit arithmetic, step by step") {
  __extension__ using Wide = unsigned __int128;
  std::mt19937_64 random(7);
  for (int round = 0; round < 20'000; ++round) {
    std::vector<std::uint64_t> shape(random() % 5);
    for (auto& extent : shape) extent = random() % 8 == 0 ? 0 : random() >> (random() % 64);
    const std::uint64_t unit = random() % 4 == 0 ? 0 : random() >> (random() % 64);
    const std::uint64_t largest = random() % 2 == 0 ? UINT64_MAX : INT64_MAX;
    Wide product = unit == 0 ? 1 : unit;
    bool is_empty = unit == 0;
    for (const std::uint64_t extent : shape) {
      is_empty = is_empty || extent == 0;
      if (extent != 0 && product <= UINT64_MAX) product *= extent;
    }
    const auto size = checked_size(shape, unit, largest);
    CHECK(size.has_value() == (product <= largest));
    if (size) CHECK(*size == (is_empty ? 0 : static_cast<std::uint64_t>(product)));
  }
}

}  // namespace onecopy
