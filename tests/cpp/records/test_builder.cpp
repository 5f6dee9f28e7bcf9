// What the builder of rows refuses, and what needs C++; what comes back is in
// packages/records/tests/test_record_columns.py.
#include "file_of.hpp"
#include "onecopy/base/error.hpp"
#include "onecopy/records/arrow.hpp"
#include "onecopy/records/builder.hpp"
#include "onecopy/records/json_import.hpp"
#include "precompiled.hpp"

namespace onecopy {

using records::Builder;
using records::Column;
using testing::file_of;

TEST_CASE("no rows, and rows that are all None, have no buffers") {
  for (const std::uint64_t count : {0U, 3U}) {
    const auto file = file_of([&](Column& rows) { rows.nulls(count); });
    const Index& index = file.arrays().index();
    CHECK(std::ranges::all_of(index.entries(), [&](const Entry& entry) { return index.is_filler(entry); }));
    CHECK(file.rows().length == count);
  }
}

TEST_CASE("every buffer is aligned to the size of its numbers, which shows if one of them is moved by a byte") {
  const auto file = file_of([](Column& rows) {
    auto& row = rows.record();
    row.field("integer").integer(70'000);
    row.field("real").real(0.1);
    auto& list = row.field("list").list();
    list.items().integer(1 << 20U);
    list.end();
    constexpr std::array<std::uint64_t, 1> shape{2};
    row.field("array").array({.dtype = "<f8", .item_size = 8, .shape = shape, .bytes = std::array<std::byte, 16>{}});
    row.end();
  });
  records::check(file.rows());
  CHECK(records::is_aligned(file.rows()));
  const auto is_aligned_with = [&](std::size_t child, records::Numbers records::Node::* buffer, bool in_list = false) {
    auto rows = file.rows();
    auto& node = in_list ? rows.children[child].children[0] : rows.children[child];
    REQUIRE((node.*buffer).first != nullptr);
    ++(node.*buffer).first;
    return records::is_aligned(rows);
  };
  CHECK_FALSE(is_aligned_with(0, &records::Node::data));
  CHECK_FALSE(is_aligned_with(1, &records::Node::data));
  CHECK_FALSE(is_aligned_with(2, &records::Node::data, true));
  CHECK_FALSE(is_aligned_with(3, &records::Node::data));
}

// In Python, rows of so many shapes are maps.
TEST_CASE("more than 65,536 shapes are numbered in U32") {
  for (const std::uint32_t shapes : {65536U, 65537U}) {  // all subsets of 17 fields, by the bits of a number
    const auto file = file_of([shapes](Column& rows) {
      for (std::uint32_t number = 0; number < shapes; ++number) {
        auto& row = rows.record();
        for (unsigned bit = 0; bit < 17; ++bit)
          if ((number >> bit & 1U) != 0) row.field("f" + std::to_string(bit)).boolean(true);
        row.end();
      }
    });
    CHECK(file.arrays().entry("records.0.shape").dtype == (shapes == 65536 ? DType::u16 : DType::u32));
    CHECK(file.rows().fields(shapes - 1).size() == (shapes == 65536 ? 16 : 1));
  }
}

TEST_CASE("what is too deep for any reader is not written") {
  const auto nest = [](Column& rows, int levels) {
    Column* at = &rows;
    for (int i = 0; i < levels; ++i) at = &at->extension("E");
    at->integer(1);
  };
  CHECK_NOTHROW(file_of([&](Column& rows) { nest(rows, 127); }));
  CHECK_THROWS_AS(file_of([&](Column& rows) { nest(rows, 128); }), FormatError);
}

// With the sanitizers, a key that is read twice while it changes is a heap overrun in the sort.
TEST_CASE_FIXTURE(InFolder, "keys of JSON that another thread changes give rows or an error") {
  constexpr std::size_t count = 2000;
  std::string text = "[{";
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < count; ++i) {
    text += i == 0 ? "\"" : ",\"";
    places.push_back(text.size());
    text += 'a' + std::to_string(10'000 + i * 7919 % count) + "\":1";
  }
  text += "}]";
  std::atomic<bool> ends{false};
  std::thread writer([&] {
    for (std::size_t i = 1; !ends; i = i * 48271 % 2147483647)
      std::atomic_ref(text[places[i % count]]).store(i % 3 == 0 ? 'z' : 'a', std::memory_order_relaxed);
  });
  for (int i = 0; i < 100; ++i) {
    Builder builder({.spool = folder.path()});
    try {
      records::import_json(std::as_bytes(std::span(text)), builder.rows());
    } catch (const FormatError&) {
    }
  }
  ends = true;
  writer.join();
}

TEST_CASE_FIXTURE(InFolder, "dicts are maps where the types of records would not fit into a header") {
  const std::string padding(200'000, 'k');
  Builder builder({.spool = folder.path()});
  for (int row = 0; row < 40; ++row) {
    std::vector<std::string> names;
    for (int i = 0; i < 10; ++i) names.push_back(std::to_string(row * 10 + i) + padding);
    const std::vector<std::string_view> keys(names.begin(), names.end());
    if (builder.rows().fits_record(keys)) {
      auto& record = builder.rows().record();
      for (const auto key : keys) record.field(key).integer(row);
      record.end();
    } else {
      auto& map = builder.rows().map();
      for (const auto key : keys) {
        map.keys().text(key);
        map.values().integer(row);
      }
      map.end();
    }
  }
  CHECK(builder.finish() < 300'000'000);
}

TEST_CASE_FIXTURE(InFolder, "dicts whose keys are data are no records") {
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
  CHECK_THROWS_WITH_AS(file_of(key_twice), doctest::Contains("'a' twice"), FormatError);
  CHECK_THROWS_AS(file_of(hole), FormatError);
  CHECK_THROWS_AS(file_of(key_alone), FormatError);
}

}  // namespace onecopy
