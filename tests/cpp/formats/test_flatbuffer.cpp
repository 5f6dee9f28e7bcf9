// What offsets may say. What tables hold is in test_ort.cpp and test_executorch.cpp.
#include "flatbuffer_builder.hpp"
#include "formats/parsing.hpp"
#include "formats/wire/flatbuffer.hpp"
#include "onecopy/base/error.hpp"
#include "precompiled.hpp"

namespace onecopy {
namespace {

using namespace testing;

using flatbuffer::Buffer;
using flatbuffer_test::file_of;
using flatbuffer_test::TableOf;

// What reading everything of `example` says of a file that is made like it.
std::string error_of(std::string_view file) {
  return testing::refusal([&] {
    Buffer buffer(bytes_of(file));
    const auto root = buffer.root();
    (void)root.number<std::uint64_t>(0);
    (void)root.text(1);
    const auto numbers = root.vector(2, 8);
    for (std::uint32_t i = 0; i < numbers.size(); ++i) (void)numbers.number<std::uint64_t>(i);
    const auto tables = root.offsets(3);
    for (std::uint32_t i = 0; i < tables.size(); ++i) (void)tables.table(i).text(0);
    return 0;
  });
}

std::string example() {
  return file_of(TableOf()
                     .number(0, std::uint64_t{7})
                     .text(1, "abc")
                     .numbers<std::uint64_t>(2, {1, 2})
                     .tables(3, {TableOf().text(0, "x"), TableOf()}),
                 "TEST");
}

std::uint32_t root_of(std::string_view file) { return number_in<std::uint32_t>(file, 0); }

}  // namespace

TEST_CASE("a file is known by its letters behind an offset that can be one") {
  const auto file = example();
  CHECK(flatbuffer::identifier(bytes_of(file)) == "TEST");
  CHECK(flatbuffer::identifier(bytes_of(file.substr(0, 7))).empty());
  CHECK(flatbuffer::identifier(bytes_of("BUDGET12 and more text")).empty());
  for (const std::uint32_t root : {0U, 4U, 10U, 4000000000U, static_cast<std::uint32_t>(file.size() - 3)})
    CHECK(flatbuffer::identifier(bytes_of(with(file, 0, root))).empty());
}

TEST_CASE("offsets that lead astray are refused, with the byte where they stand") {
  const auto file = example();
  const auto root = root_of(file);
  const auto vtable = root - number_in<std::uint32_t>(file, root);
  CHECK(error_of(file) == "accepted");
  CHECK(error_of("") == "truncated at 0");
  CHECK(error_of(with(file, 0, std::uint32_t{0})) == "malformed at 0");
  CHECK(error_of(with(file, 0, UINT32_MAX)) == "out_of_bounds at 0");
  CHECK(error_of(with(file, 0, root + 1)) == "malformed at 25");
  CHECK(error_of(with(file, 0, static_cast<std::uint32_t>(file.size()))) == "truncated at 160");
  CHECK(error_of(with(file, root, std::int32_t{INT32_MAX})) == "out_of_bounds at 24");
  CHECK(error_of(with(file, root, std::int32_t{INT32_MIN})) == "truncated at 2147483672");
  CHECK(error_of(with(file, root, static_cast<std::int32_t>(root - vtable + 1))) == "malformed at 7");
  for (const auto size : std::initializer_list<std::uint16_t>{2, 5, 65534})
    CHECK(error_of(with(file, vtable, size)) == "out_of_bounds at 8");
  for (const auto size : std::initializer_list<std::uint16_t>{0, 3, 65535})
    CHECK(error_of(with(file, vtable + 2, size)) == "out_of_bounds at 24");
  // The field begins on the way to the vtable, ends behind the table, or is not where eight bytes can stand.
  for (const auto place : std::initializer_list<std::uint16_t>{2, 36, 65535})
    CHECK(error_of(with(file, vtable + 4, place)) == "out_of_bounds at 24");
  CHECK(error_of(with(file, vtable + 4, std::uint16_t{12})) == "malformed at 36");
}

TEST_CASE("vectors and texts end where the file ends") {
  const auto file = example();
  const auto text = file.find("abc") - 4;
  CHECK(error_of(with(file, text, UINT32_MAX)) == "truncated at 64");
  CHECK(error_of(with(file, text, std::uint32_t{2})) == "malformed at 64");
  CHECK(error_of(with(file, text + 4, '\xFF')) == "malformed at 64");
  const std::string numbers("\x02\0\0\0\x01\0\0\0\0\0\0\0\x02", 13);
  const auto vector = file.find(numbers);
  REQUIRE(vector != std::string::npos);
  CHECK(error_of(with(file, vector, std::uint32_t{0x20000000})) == "truncated at 76");
  const auto at = root_of(file) + 24;  // the third field, four bytes further than it should lead
  const auto way = number_in<std::uint32_t>(file, at);
  CHECK(error_of(with(with(file, vector + 4, std::uint32_t{1}), at, way + 4)) == "malformed at 80");
}

TEST_CASE("a file that refers to the same parts again and again is not read to the end") {
  // A vector of many offsets that all lead to one table, whose text is long.
  auto file =
      file_of(TableOf().tables(3, std::vector<TableOf>(200, TableOf())).text(1, std::string(4000, 'x')), "TEST");
  const auto list = file.find(std::string("\xC8\0\0\0", 4)) + 4;
  const auto tail = file_of(TableOf().text(0, std::string(4000, 'y')), "TEST");
  const auto table = file.size() + root_of(tail);
  file += tail;
  for (std::size_t at = list; at < list + 800; at += 4) file = with(file, at, static_cast<std::uint32_t>(table - at));
  CHECK(error_of(file) == "too_costly");
}

TEST_CASE("tables inside tables have an end") {
  const auto depth_of = [](int depth) {
    TableOf inner;
    for (int i = 0; i < depth; ++i) inner = TableOf().table(0, std::move(inner));
    const auto file = file_of(inner, "TEST");
    Buffer buffer(bytes_of(file));
    int found = 0;
    const auto error = refusal([&] {
      for (auto table = std::optional(buffer.root()); table; table = table->table(0)) ++found;
      return 0;
    });
    CHECK(found == flatbuffer::deepest + 1);
    return error.substr(0, error.find(' '));
  };
  CHECK(depth_of(flatbuffer::deepest) == "accepted");
  CHECK(depth_of(flatbuffer::deepest + 1) == "too_costly");
}

}  // namespace onecopy
