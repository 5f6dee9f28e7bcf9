// What is appended is what the file holds, checked by a reader that reads one value at a time.

#include <bit>

#include "built.hpp"
#include "onecopy/base/error.hpp"
#include "onecopy/records/builder.hpp"
#include "onecopy/records/json_import.hpp"
#include "precompiled.hpp"

namespace onecopy {

using records::Column;
using records::TypeKind;
using testing::append_list;
using testing::built;
using testing::bytes_of;
using testing::dtype_of;
using testing::rows_of;
using testing::tensors_of;

TEST_CASE("no rows, and rows that are all None, have no buffers") {
  const auto none = built([](Column&) {});
  CHECK(none.rows() == "[]");
  CHECK(tensors_of(none) == 0);
  const auto nulls = built([](Column& rows) { rows.nulls(3); });
  CHECK(nulls.rows() == "[None, None, None]");
  CHECK(nulls.schema().rows.kind == TypeKind::null);
  CHECK(tensors_of(nulls) == 0);
}

TEST_CASE("every leaf comes back, alone and with None before, between and behind") {
  const std::vector<std::pair<std::function<void(Column&)>, std::string>> leaves{
      {[](Column& c) { c.boolean(true); }, "True"},
      {[](Column& c) { c.boolean(false); }, "False"},
      {[](Column& c) { c.integer(-7); }, "-7"},
      {[](Column& c) { c.real(-0.0); }, "-0f"},
      {[](Column& c) { c.text("h\xC3\xA9"); }, "'h\xC3\xA9'"},
      {[](Column& c) { c.text(""); }, "''"},
      {[](Column& c) { c.bytes(bytes_of(std::string_view("\0\1", 2))); }, std::string("b'\0\1'", 5)},
      {[](Column& c) { c.bigint(bytes_of("\1\2\3\4\5\6\7\10\11")); }, "bigint:010203040506070809"},
      {[](Column& c) { append_list(c, {1, 2}); }, "[1, 2]"},
      {[](Column& c) { append_list(c, {}); }, "[]"},
      {[](Column& c) { c.extension("date").text("x"); }, "date<'x'>"},
      {[](Column& c) { c.extension("date").null(); }, "date<None>"},
      {[](Column& c) { c.fixed(0).end(); }, "()"},
      {[](Column& c) { c.record().end(); }, "{}"},
      {[](Column& c) { c.map().end(); }, "map[]"},
      {[](Column& c) { c.tuple().end(); }, "tuple[]"},
  };
  for (const auto& [append, text] : leaves) {
    CHECK(rows_of(append) == "[" + text + "]");
    CHECK(rows_of([&](Column& rows) {
            rows.null();
            append(rows);
            rows.nulls(2);
            append(rows);
            rows.null();
          }) == "[None, " + text + ", None, None, " + text + ", None]");
  }
}

TEST_CASE("integers are as narrow as the column allows, at every boundary") {
  std::int64_t narrower = -1;  // the most of the width before
  for (const auto dtype : {DType::i8, DType::i16, DType::i32, DType::i64}) {
    const std::int64_t most = INT64_MAX >> (64U - bits(dtype));
    for (const std::int64_t value : {narrower + 1, -narrower - 2, most, -most - 1}) {
      const auto reader = built([value](Column& rows) {
        rows.integer(1);
        rows.integer(value);
      });
      CHECK(reader.rows() == "[1, " + std::to_string(value) + "]");
      CHECK(dtype_of(reader, "records.0.data") == dtype);
    }
    narrower = most;
  }
}

TEST_CASE("integers and reals share a column as long as reals hold the integers") {
  constexpr std::int64_t exact = std::int64_t{1} << 53U;
  const auto both = [](std::vector<std::pair<bool, double>> values) {
    return built([&](Column& rows) {
      for (const auto& [integer, value] : values)
        if (integer)
          rows.integer(static_cast<std::int64_t>(value));
        else
          rows.real(value);
    });
  };
  const double edge = static_cast<double>(exact);
  const auto ints_first = both({{true, 1}, {true, -edge}, {false, 0.5}, {true, edge}});
  CHECK(ints_first.rows() == "[1, -9007199254740992, 0.5f, 9007199254740992]");
  const auto reals_first = both({{false, 2}, {false, 0.5}, {true, 2}});
  CHECK(reals_first.rows() == "[2f, 0.5f, 2]");
  for (const auto& mixed : {&ints_first, &reals_first}) CHECK(mixed->schema().rows.kind == TypeKind::number);
  CHECK(both({{false, 2}, {false, 0.5}}).schema().rows.kind == TypeKind::real);
  for (const std::int64_t wide : {exact + 1, -exact - 1, INT64_MAX, INT64_MIN}) {
    const auto wide_late = built([wide](Column& rows) {
      rows.real(0.5);
      rows.integer(wide);
      rows.integer(3);
      rows.real(1.5);
    });
    CHECK(wide_late.rows() == "[0.5f, " + std::to_string(wide) + ", 3, 1.5f]");
    CHECK(wide_late.schema().rows.kind == TypeKind::choice);
    const auto wide_first = built([wide](Column& rows) {
      rows.integer(wide);
      rows.real(0.5);
      rows.integer(3);
    });
    CHECK(wide_first.rows() == "[" + std::to_string(wide) + ", 0.5f, 3]");
    CHECK(wide_first.schema().rows.children.at(0).kind == TypeKind::integer);
  }
}

TEST_CASE("the bits of reals are kept") {
  for (const std::uint64_t bits : std::initializer_list<std::uint64_t>{
           0x7FF8000000000000U, 0xFFF8000000000123U, 0x7FF0000000000001U, 0x7FF0000000000000U, 0xFFF0000000000000U,
           0x8000000000000000U, 0x0000000000000001U}) {
    const auto reader = built([bits](Column& rows) {
      rows.integer(1);  // so that they pass through the conversion too
      rows.real(std::bit_cast<double>(bits));
    });
    std::uint64_t found = 0;
    std::memcpy(&found, reader.file().bytes("records.0.data").data() + 8, sizeof(found));
    CHECK(found == bits);
  }
}

TEST_CASE("a second kind of value makes a choice, after any number of values and of None") {
  for (const int before : {0, 1, 7, 8, 9, 64, 8191, 8192, 8193, 20000})
    for (const int nulls : {0, 1, 9, 9000}) {
      std::string expected;
      const auto reader = built([&](Column& rows) {
        rows.nulls(static_cast<std::uint64_t>(nulls));
        for (int i = 0; i < nulls; ++i) expected += "None, ";
        for (int i = 0; i < before; ++i) {
          rows.integer(i);
          expected += std::to_string(i) + ", ";
        }
        rows.text("x");
        rows.null();
        rows.integer(5);
        rows.boolean(true);
        rows.text("y");
      });
      CHECK(reader.rows() == "[" + expected + "'x', None, 5, True, 'y']");
      CHECK(reader.schema().rows.kind == TypeKind::choice);
      CHECK_FALSE(reader.schema().rows.nullable);
      CHECK(dtype_of(reader, "records.0.tag") == DType::i8);
      CHECK(dtype_of(reader, "records.0.offsets") == DType::i32);
    }
}

TEST_CASE("an empty dict has pairs, though there is none") {
  const auto reader = built([](Column&) {}, "dict");
  CHECK(reader.schema().container == "dict");
  CHECK(reader.schema().rows.kind == TypeKind::fixed);
}

TEST_CASE("what is too deep for any reader is not written") {
  const auto nest = [](Column& rows, int levels) {
    Column* at = &rows;
    for (int i = 0; i < levels; ++i) at = &at->extension("E");
    at->integer(1);
  };
  CHECK_NOTHROW(built([&](Column& rows) { nest(rows, 127); }));
  CHECK_THROWS_AS(built([&](Column& rows) { nest(rows, 128); }), FormatError);
}

// With the sanitizers, a key that is read twice while it changes is a heap overrun in the sort.
TEST_CASE("keys of JSON that another thread changes give rows or an error") {
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
  const testing::ScratchFolder folder;
  for (int i = 0; i < 100; ++i) {
    records::Builder builder({.spool = folder.path()});
    try {
      records::import_json(std::as_bytes(std::span(text)), builder.rows());
    } catch (const FormatError&) {
    }
  }
  ends = true;
  writer.join();
}

TEST_CASE("dicts are maps where the types of records would not fit into a header") {
  const std::string padding(200'000, 'k');
  const testing::ScratchFolder folder;
  records::Builder builder({.spool = folder.path()});
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

}  // namespace onecopy
