#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <random>
#include <string>
#include <string_view>

#include "formats/wire/json.hpp"
#include "onecopy/base/error.hpp"
#include "onecopy/formats/safetensors.hpp"
#include "refusal.hpp"
#include "scratch_folder.hpp"

namespace onecopy {
namespace {

std::vector<std::byte> file_of(std::string_view header, std::size_t data_size, std::uint64_t announced) {
  std::vector<std::byte> file;
  for (unsigned i = 0; i < 8; ++i) file.push_back(static_cast<std::byte>((announced >> (8 * i)) & 0xFFU));
  for (const char c : header) file.push_back(static_cast<std::byte>(c));
  file.resize(file.size() + data_size);
  return file;
}

std::vector<std::byte> file_of(std::string_view header, std::size_t data_size) {
  return file_of(header, data_size, header.size());
}

std::string error_of(const std::vector<std::byte>& file) {
  return testing::refusal([&] { return safetensors::parse(file); });
}

struct Bad {
  std::string_view header;
  std::size_t data_size;
  std::string_view refusal;
};

}  // namespace

TEST_CASE("a valid file gives its entries in the order of the header") {
  const auto file = file_of(
      R"( {"b":{"dtype":"F32","shape":[2,3],"data_offsets":[8,32]},"__metadata__":{"k":"v"},)"
      R"("a\u00e9\n":{"shape":[],"data_offsets":[0,8],"dtype":"I64"},"empty":{"dtype":"U8","shape":[0,7],"data_offsets":[32,32]}}  )",
      32);
  // The format wants '{' first; the space is there to see that.
  CHECK(error_of(file) == "not_this_format");
  auto header = std::string(reinterpret_cast<const char*>(file.data()) + 9, file.size() - 9 - 32);
  const auto good = file_of(header, 32);
  const auto index = safetensors::parse(good);
  REQUIRE(index.entries().size() == 3);
  const Entry& b = index.entries()[0];
  CHECK(b.name == "b");
  CHECK(b.dtype == DType::f32);
  CHECK(std::ranges::equal(b.shape, std::array<std::uint64_t, 2>{2, 3}));
  CHECK(b.offset == 8 + header.size() + 8);
  CHECK(b.length == 24);
  CHECK(index.entries()[1].name == "a\u00e9\n");
  CHECK(index.entries()[1].shape.empty());
  CHECK(index.metadata().at("k") == "v");
  CHECK(index.find("empty")->length == 0);
  CHECK(index.find("missing") == nullptr);
  CHECK(index.kind() == Kind::foreign);
}

TEST_CASE("every inconsistency in a header is reported, with the name or the byte") {
  const std::string deep(100, '[');
  const std::string deep_header = R"({"a":{"x":)" + deep + "}}";
  const std::array bad{
      Bad{"", 0, "not_this_format"},
      Bad{"[]", 0, "not_this_format"},
      Bad{"{", 0, "malformed at 9"},
      Bad{"{}x", 0, "malformed at 10"},
      Bad{"{,}", 0, "malformed at 9"},
      Bad{R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},})", 1, "malformed at 61"},
      Bad{R"({"a":1})", 0, "malformed at 13"},
      Bad{R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", 3, "truncated at 64"},
      Bad{R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", 5, "inconsistent at 65"},
      Bad{R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[4,0]}})", 4, "malformed"},
      Bad{R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4,5]}})", 4, "malformed at 59"},
      Bad{R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0]}})", 4, "malformed at 57"},
      Bad{R"({"a":{"dtype":"U8","shape":[5],"data_offsets":[0,4]}})", 4, "inconsistent"},
      Bad{R"({"a":{"dtype":"U9","shape":[4],"data_offsets":[0,4]}})", 4, "unsupported"},
      Bad{R"({"a":{"dtype":"F4","shape":[3],"data_offsets":[0,2]}})", 2, "inconsistent"},
      Bad{R"({"a":{"dtype":"U8","shape":[4]}})", 4, "malformed"},
      Bad{R"({"a":{"dtype":"U8","shape":[-4],"data_offsets":[0,4]}})", 4, "malformed at 36"},
      Bad{R"({"a":{"dtype":"U8","shape":[4.0],"data_offsets":[0,4]}})", 4, "malformed at 37"},
      Bad{R"({"a":{"dtype":"U8","shape":[4e0],"data_offsets":[0,4]}})", 4, "malformed at 37"},
      Bad{R"({"a":{"dtype":"U8","shape":[04],"data_offsets":[0,4]}})", 4, "malformed at 36"},
      Bad{R"({"a":{"dtype":"U8","shape":[18446744073709551616],"data_offsets":[0,4]}})", 4, "malformed at 36"},
      Bad{R"({"a":{"dtype":"F64","shape":[4611686018427387904,4],"data_offsets":[0,0]}})", 0, "inconsistent"},
      Bad{R"({"a":{"dtype":"F64","shape":[0,4611686018427387904,4],"data_offsets":[0,0]}})", 0, "inconsistent"},
      Bad{R"({"a":{"dtype":"F64","shape":[4611686018427387904,4,0],"data_offsets":[0,0]}})", 0, "inconsistent"},
      Bad{R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[18446744073709551615,18446744073709551615]}})", 1,
          "truncated at 100"},
      Bad{R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"a":{"dtype":"U8","shape":[0],"data_offsets":[4,4]}})",
          4, "inconsistent"},
      Bad{R"({"a":{"dtype":"U8","dtype":"U8","shape":[4],"data_offsets":[0,4]}})", 4, "inconsistent at 35"},
      Bad{R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}})",
          6, "inconsistent at 115"},
      Bad{R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[4,6]}})",
          6, "inconsistent at 117"},
      Bad{R"({"__metadata__":{"a":1}})", 0, "malformed at 29"},
      Bad{R"({"__metadata__":{"a":"1","a":"2"}})", 0, "inconsistent at 40"},
      Bad{R"({"__metadata__":{},"__metadata__":{}})", 0, "inconsistent at 42"},
      Bad{"{\"a\xff\":{}}", 0, "malformed"},
      Bad{"{\"a\xc0\xaf\":{}}", 0, "malformed"},
      Bad{"{\"a\n\":{}}", 0, "malformed at 11"},
      Bad{R"({"\ud800":{}})", 0, "malformed at 16"},
      Bad{R"({"\x":{}})", 0, "malformed at 12"},
      Bad{R"({"\u12g4":{}})", 0, "malformed at 12"},
      Bad{deep_header, 0, "too_costly at 80"},
      Bad{R"({"__metadata__":{"onecopy":"{\"version\":9,\"kind\":\"arrays\"}"}})", 0, "unsupported"},
      Bad{R"({"__metadata__":{"onecopy":"{\"version\":1,\"kind\":\"enigma\"}"}})", 0, "unsupported"},
      Bad{R"({"__metadata__":{"onecopy":"{\"version\":1,\"kind\":\"struct\",\"crc32c\":{\"header\":\"00000000\"}}"}})",
          0, "inconsistent"},
  };
  for (const auto& one : bad) {
    CAPTURE(one.header);
    const auto error = error_of(file_of(one.header, one.data_size));
    CAPTURE(error);
    CHECK(error == one.refusal);
  }
}

TEST_CASE("a wrong header length is reported before anything is allocated") {
  CHECK(error_of(std::vector<std::byte>(7)) == "truncated at 7");
  CHECK(error_of(file_of("{}", 0, 3)) == "truncated at 10");
  CHECK(error_of(file_of("{}", 0, 100'000'001)) == "not_this_format at 0");
  CHECK(error_of(file_of("{}", 0, UINT64_MAX)) == "not_this_format at 0");
  CHECK(error_of(file_of("{}", 0)) == "accepted");
}

TEST_CASE("other tools' texts under our name are only texts") {
  for (const std::string_view text : {"", "hello", "{}", R"({\"version\":1})", R"({\"kind\":\"arrays\"})", "[1]"}) {
    const auto header = R"({"__metadata__":{"onecopy":")" + std::string(text) + R"("}})";
    const auto file = file_of(header, 0);
    CHECK(safetensors::parse(file).kind() == Kind::foreign);
  }
}

TEST_CASE("cut or flipped anywhere, a small file is accepted or refused, never worse") {
  const auto good = file_of(
      R"({"__metadata__":{"k":"v\u00e9"},"a":{"dtype":"BF16","shape":[2,2],"data_offsets":[0,8]},"b":{"dtype":"F4","shape":[4],"data_offsets":[8,10]}})",
      10);
  REQUIRE(error_of(good) == "accepted");
  for (std::size_t size = 0; size < good.size(); ++size)
    CHECK(error_of({good.begin(), good.begin() + static_cast<std::ptrdiff_t>(size)}) != "accepted");
  std::mt19937_64 random(11);
  for (int round = 0; round < 20'000; ++round) {
    auto bad = good;
    for (std::uint64_t flips = random() % 3 + 1; flips > 0; --flips)
      bad[random() % bad.size()] ^= static_cast<std::byte>(1U << (random() % 8));
    try {
      const auto index = safetensors::parse(bad);
      for (const Entry& entry : index.entries()) CHECK(in_bounds(bad.size(), entry.offset, entry.length));
    } catch (const FormatError&) {
      CHECK(true);
    }
  }
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

}  // namespace onecopy
