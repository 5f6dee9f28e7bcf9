// Dicts: their keys, the order of them, and which are records at all.
#include "built.hpp"
#include "onecopy/base/error.hpp"
#include "precompiled.hpp"

namespace onecopy {

using records::Builder;
using records::Column;
using testing::built;
using testing::dtype_of;
using testing::NaiveReader;
using testing::rows_of;

TEST_CASE("dicts that are alike have no shapes, and others come back with their keys in order") {
  const auto alike = built([](Column& rows) {
    for (int i = 0; i < 3; ++i) {
      auto& row = rows.record();
      row.field("b").integer(i);
      row.field("a").text("x");
      row.end();
    }
  });
  CHECK(alike.rows() == "[{b: 0, a: 'x'}, {b: 1, a: 'x'}, {b: 2, a: 'x'}]");
  CHECK(alike.schema().rows.shapes == std::vector<std::vector<std::uint32_t>>{{0, 1}});
  CHECK(alike.file().index().find("records.0.shape") == nullptr);
  const auto different = built([](Column& rows) {
    const std::vector<std::vector<const char*>> all{{"a", "b"},      {"b", "a"}, {},   {"a"},
                                                    {"c", "a", "b"}, {"a", "b"}, {"c"}};
    rows.null();
    for (const auto& keys : all) {
      auto& row = rows.record();
      for (const auto* key : keys) row.field(key).text(key);
      row.end();
    }
    rows.null();
  });
  CHECK(different.rows() ==
        "[None, {a: 'a', b: 'b'}, {b: 'b', a: 'a'}, {}, {a: 'a'}, {c: 'c', a: 'a', b: 'b'}, "
        "{a: 'a', b: 'b'}, {c: 'c'}, None]");
  CHECK(different.schema().rows.shapes.size() == 6);
  CHECK(dtype_of(different, "records.0.shape") == DType::u8);
}

TEST_CASE("a field that comes up after many rows costs nothing for those") {
  constexpr int many = 100'000;
  const testing::ScratchFolder folder;
  Builder builder({.spool = folder.path(), .container = "list", .metadata = {}});
  for (int i = 0; i <= many; ++i) {
    auto& row = builder.rows().record();
    row.field("a").boolean(true);
    if (i == many) {
      row.field("n").integer(3);
      row.field("r").real(3);
      row.field("t").text("x");
      row.field("l").list().end();
    }
    row.end();
  }
  CHECK(builder.bytes() == 0);  // nothing had to leave the memory
  builder.save(folder / "rows");
  const NaiveReader reader(ArrayFile::open(folder / "rows"));
  const auto& rows = reader.schema().rows;
  CHECK(reader.value(rows, "records.0", many - 1) == "{a: True}");
  CHECK(reader.value(rows, "records.0", many) == "{a: True, n: 3, r: 3f, t: 'x', l: []}");
  for (const auto& child : rows.children) CHECK(child.length == many + 1);
}

TEST_CASE("fields that are rare come back, however far apart") {
  for (const std::uint64_t apart : {2U, 9U, 1000U, 1024U, 1025U, 8192U, 9000U}) {
    const auto reader = built([apart](Column& rows) {
      for (std::uint64_t i = 0; i < 30'000; ++i) {
        auto& row = rows.record();
        if (i % apart == 1) {
          row.field("n").integer(static_cast<std::int64_t>(i));
          row.field("r").real(static_cast<double>(i));
          row.field("b").boolean(i % 2 == 0);
          row.field("t").text(std::to_string(i));
        }
        row.end();
      }
    });
    const auto& rows = reader.schema().rows;
    for (std::uint64_t i = 1; i < 30'000; i += i % apart == 1 ? 1 : std::max<std::uint64_t>(1, apart - i % apart)) {
      const std::string n = std::to_string(i);
      const std::string expected =
          "{n: " + n + ", r: " + n + "f, b: " + (i % 2 == 0 ? "True" : "False") + ", t: '" + n + "'}";
      REQUIRE(reader.value(rows, "records.0", i) == (i % apart == 1 ? expected : "{}"));
    }
  }
}

TEST_CASE("shapes are numbered in U8, U16 and U32") {
  const auto shaped = [](std::uint32_t shapes) {  // all subsets of 17 fields, by the bits of a number
    return built([shapes](Column& rows) {
      for (std::uint32_t number = 0; number < shapes; ++number) {
        auto& row = rows.record();
        for (unsigned bit = 0; bit < 17; ++bit)
          if ((number >> bit & 1U) != 0) row.field("f" + std::to_string(bit)).boolean(true);
        row.end();
      }
    });
  };
  CHECK(dtype_of(shaped(256), "records.0.shape") == DType::u8);
  CHECK(dtype_of(shaped(257), "records.0.shape") == DType::u16);
  CHECK(dtype_of(shaped(65536), "records.0.shape") == DType::u16);
  const auto most = shaped(65537);
  CHECK(dtype_of(most, "records.0.shape") == DType::u32);
  CHECK(most.value(most.schema().rows, "records.0", 65536) == "{f16: True}");
}

TEST_CASE_FIXTURE(testing::InScratchFolder, "dicts whose keys are data are no records") {
  Builder builder({.spool = folder.path(), .container = "list", .metadata = {}});
  Column& rows = builder.rows();
  std::vector<std::string> names;
  for (int i = 0; i < 2000; ++i) names.push_back("key" + std::to_string(i));
  const std::vector<std::string_view> keys(names.begin(), names.end());
  const auto add = [&rows](std::span<const std::string_view> some) {
    auto& row = rows.record();
    for (const auto key : some) row.field(key).null();
    row.end();
  };
  CHECK(rows.fits_record(std::span(keys).first(1024)));
  CHECK_FALSE(rows.fits_record(std::span(keys).first(1025)));
  add(std::span(keys).first(10));
  CHECK(rows.fits_record(std::span(keys).subspan(10, 1014)));
  CHECK_FALSE(rows.fits_record(std::span(keys).subspan(10, 1015)));
  for (int i = 1; i < 64; ++i) add(std::span(keys).first(10));
  CHECK(rows.fits_record(std::span(keys).subspan(10, 64)));
  CHECK_FALSE(rows.fits_record(std::span(keys).subspan(10, 65)));
  add(std::span(keys).subspan(10, 60));
  CHECK(rows.fits_record(std::span(keys).subspan(5, 69)));
  CHECK_FALSE(rows.fits_record(std::span(keys).subspan(5, 70)));
  CHECK(rows.fits_record({}));
}

TEST_CASE("a key twice, a tuple with a hole and a dict with more keys than values are refused") {
  const auto key_twice = [](Column& rows) {
    auto& row = rows.record();
    row.field("a").null();
    row.field("a");
  };
  const auto hole = [](Column& rows) {
    auto& pair = rows.fixed(2);
    pair.at(0).null();
    pair.end();
  };
  const auto key_alone = [](Column& rows) {
    auto& map = rows.map();
    map.keys().null();
    map.end();
  };
  CHECK_THROWS_WITH_AS(rows_of(key_twice), doctest::Contains("'a' twice"), FormatError);
  CHECK_THROWS_AS(rows_of(hole), FormatError);
  CHECK_THROWS_AS(rows_of(key_alone), FormatError);
}

}  // namespace onecopy
