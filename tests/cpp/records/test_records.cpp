// What needs C++: hostile threads, limits that Python does not reach, and what is refused. What comes back is in
// packages/records/tests: test_record_columns.py, test_records_dict.py, test_records_take.py.
#include <cmath>

#include "onecopy/base/error.hpp"
#include "onecopy/records/arrow.hpp"
#include "onecopy/records/budget.hpp"
#include "onecopy/records/builder.hpp"
#include "onecopy/records/hash_index.hpp"
#include "onecopy/records/json_import.hpp"
#include "onecopy/records/record_file.hpp"
#include "onecopy/records/take.hpp"
#include "precompiled.hpp"
#include "scratch_folder.hpp"

namespace onecopy::records {
namespace {

using Append = std::function<void(Column&)>;

// A records file of what is appended, as it is read.
RecordFile file_of(const Append& append, std::string container = "list") {
  const testing::ScratchFolder folder;
  Builder builder({.spool = folder.path(), .container = std::move(container)});
  append(builder.rows());
  builder.save(folder / "rows");
  return RecordFile::open(folder / "rows");  // the mapping outlives the path
}

// A dict of these keys, whose values are their positions.
RecordFile dict_of(const std::vector<Append>& keys) {
  return file_of(
      [&](Column& rows) {
        for (std::size_t i = 0; i < keys.size(); ++i) {
          FixedColumn& pair = rows.fixed(2);
          keys[i](pair.at(0));
          pair.at(1).integer(static_cast<std::int64_t>(i));
          pair.end();
        }
      },
      "dict");
}

std::string bytes_of(const std::vector<unsigned>& bytes) { return {bytes.begin(), bytes.end()}; }

}  // namespace

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
  check(file.rows());
  CHECK(is_aligned(file.rows()));
  for (const std::size_t child : {0U, 1U, 2U, 3U}) {
    auto rows = file.rows();
    auto& node = child == 2 ? rows.children[child].children[0] : rows.children[child];
    REQUIRE(node.data.first != nullptr);
    ++node.data.first;
    CHECK_FALSE(is_aligned(rows));
  }
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

TEST_CASE("what is too deep for any reader, and rows that are not complete, are not written") {
  const auto nest = [](int levels) {
    return [levels](Column& rows) {
      Column* at = &rows;
      for (int i = 0; i < levels; ++i) at = &at->extension("E");
      at->integer(1);
    };
  };
  CHECK_NOTHROW(file_of(nest(127)));
  const auto key_twice = [](Column& rows) {
    auto& row = rows.record();
    row.field("a").null();
    row.field("a");
  };
  const auto tuple_with_a_hole = [](Column& rows) {
    auto& pair = rows.fixed(2);
    pair.at(0).null();
    pair.end();
  };
  const auto key_without_a_value = [](Column& rows) {
    auto& map = rows.map();
    map.keys().null();
    map.end();
  };
  for (const Append& append :
       {Append(nest(128)), Append(key_twice), Append(tuple_with_a_hole), Append(key_without_a_value)})
    CHECK_THROWS_AS(file_of(append), FormatError);
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
  const std::jthread writer([&](const std::stop_token& stop) {
    for (std::size_t i = 1; !stop.stop_requested(); i = i * 48271 % 2147483647)
      std::atomic_ref(text[places[i % count]]).store(i % 3 == 0 ? 'z' : 'a', std::memory_order_relaxed);
  });
  for (int i = 0; i < 100; ++i) {
    Builder builder({.spool = folder.path()});
    try {
      import_json(std::as_bytes(std::span(text)), builder.rows());
    } catch (const FormatError&) {
    }
  }
}

TEST_CASE_FIXTURE(InFolder,
                  "a name is in the header once itself, once for each type, and once more with the first null") {
  const std::string name(40'000'000, 'n');  // of 96 MB
  const std::vector<std::string_view> keys{name};
  for (const bool null_first : {false, true}) {
    Builder builder({.spool = folder.path()});
    const auto add = [&](bool null) {
      auto& row = builder.rows().record();
      null ? row.field(name).null() : row.field(name).integer(1);
      row.end();
    };
    add(null_first);
    CHECK(builder.rows().fits_record({}) == null_first);  // it lacks the value, which is a null
    CHECK_THROWS_AS(add(!null_first), FormatError);
  }
  Builder builder({.spool = folder.path()});
  CHECK(builder.rows().fits_record(keys));
  builder.rows().record().end();
  CHECK_FALSE(builder.rows().fits_record(keys));  // the first row lacks it
}

TEST_CASE_FIXTURE(InFolder, "dicts whose keys are data are no records") {
  Builder builder({.spool = folder.path()});
  Column& rows = builder.rows();
  std::vector<std::string> names;
  for (int i = 0; i < 2000; ++i) names.push_back("key" + std::to_string(i));
  const std::vector<std::string_view> keys(names.begin(), names.end());
  const auto add = [&](std::size_t first, std::size_t count) {
    auto& row = rows.record();
    for (const auto key : std::span(keys).subspan(first, count)) row.field(key).null();
    row.end();
  };
  // Of the keys from `first` on, so many fit, and one more does not.
  const auto check_most = [&](std::size_t first, std::size_t most) {
    CHECK(rows.fits_record(std::span(keys).subspan(first, most)));
    CHECK_FALSE(rows.fits_record(std::span(keys).subspan(first, most + 1)));
  };
  check_most(0, 1024);
  add(0, 10);
  check_most(10, 1014);
  for (int i = 1; i < 64; ++i) add(0, 10);
  check_most(10, 64);
  add(10, 60);
  check_most(5, 69);
  CHECK(rows.fits_record({}));
}

TEST_CASE("one number has one key, however it is written") {
  CHECK(Key::of(-0.0) == Key::of(std::int64_t{0}));
  CHECK(Key::of(-9223372036854775808.0) == Key::of(std::numeric_limits<std::int64_t>::min()));
  CHECK(Key::of_bigint(bytes_of({5, 0, 0})) == Key::of(std::int64_t{5}));
  CHECK(Key::of_bigint(bytes_of({0xFE, 0xFF, 0xFF})) == Key::of(std::int64_t{-2}));
  CHECK(Key::of_bigint("") == Key::of(std::int64_t{0}));
  const auto two_63 = Key::of_bigint(bytes_of({0, 0, 0, 0, 0, 0, 0, 0x80, 0}));
  CHECK(Key::of(9223372036854775808.0) == two_63);
  CHECK(Key::of(9223372036854775808.0).hash() == two_63.hash());
  CHECK(Key::of(std::ldexp(-3.0, 100)) == Key::of_bigint(std::string(12, '\0') + bytes_of({0xD0})));
  CHECK(Key::of(0.1) != Key::of(0.2));
  CHECK(Key::of(std::nan("")) != Key::of(std::nan("")));
  CHECK(Key::of(std::numeric_limits<double>::infinity()) == Key::of(std::numeric_limits<double>::infinity()));
  // The seeded hash, by an implementation in Python whose rounds agree with CPython's own SipHash-1-3.
  CHECK(Key::of(std::int64_t{1}).hash(HashSeed{1, 2}) == 0x9DC3020C0FC457C0U);
  CHECK(Key::of(std::string_view("a.jpg")).hash(HashSeed{1, 2}) == 0x475E6D3C53D2BFA2U);
}

TEST_CASE("deliberately colliding keys are found, and absent ones are not") {
  // A change of a word's last bit arrives at the next word in two bits, whatever was hashed before: changed there too,
  // it is gone. So each of twelve pairs of words has two forms, and all 4096 keys have the same hash.
  const auto key_of = [](unsigned number) {
    std::string key;
    for (unsigned pair = 0; pair < 12; ++pair) {
      const std::uint64_t change = (number >> pair & 1U) != 0 ? std::uint64_t{1} << 63U : 0;
      const std::array<std::uint64_t, 2> words{pair ^ change, 77 ^ change ^ (change >> 32U)};
      key.append(reinterpret_cast<const char*>(words.data()), sizeof words);
    }
    return key;
  };
  for (const unsigned number : {1U, 4095U})
    REQUIRE(Key::of_bytes(key_of(0)).hash() == Key::of_bytes(key_of(number)).hash());
  std::vector<Append> keys;
  for (unsigned number = 0; number < 4096; ++number)
    keys.emplace_back([key = key_of(number)](Column& column) { column.bytes(std::as_bytes(std::span(key))); });
  const auto file = dict_of(keys);
  CHECK(file.arrays().index().find(HashIndex::tensor) == nullptr);
  REQUIRE(file.arrays().index().find(HashIndex::seeded_tensor) != nullptr);
  const auto index = HashIndex::of(file);
  for (unsigned number = 0; number < 4096; ++number) CHECK(index.find(Key::of_bytes(key_of(number))) == number);
  CHECK(!index.find(Key::of_bytes("none")));
  CHECK(!index.find(Key::of_bytes(key_of(5).substr(8))));
  keys.push_back(keys[17]);
  CHECK_THROWS_AS(dict_of(keys), FormatError);
}

TEST_CASE("many keys of two types are found, and a list has no index") {
  std::vector<Append> keys;
  for (std::int64_t number = 0; number < 20'000; ++number) {
    keys.emplace_back([=](Column& column) { column.integer(number * 4096); });
    keys.emplace_back([=](Column& column) { column.text("image/" + std::to_string(number) + ".jpg"); });
  }
  CHECK(HashIndex::of(dict_of(keys)).find(Key::of(std::string_view("image/77.jpg"))) == 155);
  CHECK_THROWS_AS(HashIndex::of(file_of([](Column& rows) { rows.integer(1); })), FormatError);
}

TEST_CASE(
    "what has no numbers says so, memory that is too small is not overrun, and no row is paid for more often than it "
    "is taken") {
  const auto maybe = file_of([](Column& rows) { rows.boolean(true), rows.null(); });
  CHECK_FALSE(number_type(maybe.rows()).has_value());
  const auto text = file_of([](Column& rows) { rows.text("abc"); });
  CHECK_FALSE(number_type(text.rows()).has_value());
  const std::vector<std::uint64_t> places{0, 0};
  std::vector<std::byte> small(5);
  CHECK_THROWS_AS(take_items(text.rows(), places, small), FormatError);
  for (const std::uint64_t other : {5U, 7U}) CHECK_THROWS_AS(item_places(text.rows(), places, other), FormatError);
  CHECK(item_places(text.rows(), places, 6) == std::vector<std::uint64_t>{0, 1, 2, 0, 1, 2});
  const std::vector<std::uint64_t> shape{1};
  const std::vector<std::byte> item(8);
  const auto array =
      file_of([&](Column& rows) { rows.array({.dtype = "<f8", .item_size = 8, .shape = shape, .bytes = item}); });
  constexpr std::uint64_t spare = 1U << 16U;  // bytes
  const std::vector<std::uint64_t> two_of_each{1, 0, 1, 0};
  for (const auto& [rows, size] : {std::pair(&text.rows(), std::size_t{1}), std::pair(&array.rows(), item.size())}) {
    CHECK_NOTHROW(expect_paid(*rows, two_of_each, 2 * spare / size, 0));
    CHECK_THROWS_AS(expect_paid(*rows, two_of_each, 2 * spare / size + 1, 0), FormatError);
  }
}

TEST_CASE("a budget is spent by what is charged, at once or one by one") {
  const auto text = file_of([](Column& rows) { rows.text("abc"); });
  for (const Cost cost : {Cost{3, 0}, Cost{0, 5}}) {
    Budget budget(1000);
    std::uint64_t most = 0;
    while (budget.covers(cost, most + 1)) ++most;
    budget.charge(cost, most - 10, text.rows());
    for (int i = 0; i < 10; ++i) budget.charge(cost, 1, text.rows());
    CHECK_FALSE(budget.covers(cost, 1));
    CHECK_THROWS_AS(budget.charge(cost, 1, text.rows()), FormatError);
  }
}

}  // namespace onecopy::records
