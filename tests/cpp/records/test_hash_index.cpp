// Hashes of keys; that every key is found is in packages/records/tests/test_records_dict.py.
#include "onecopy/records/hash_index.hpp"

#include <cmath>

#include "file_of.hpp"
#include "onecopy/base/error.hpp"
#include "precompiled.hpp"

namespace onecopy {
namespace {

using records::Column;
using records::FixedColumn;
using records::HashIndex;
using records::Key;

records::RecordFile file_of_dict(const std::vector<std::function<void(Column&)>>& keys) {
  return testing::file_of(
      [&](Column& rows) {
        std::int64_t number = 0;
        for (const auto& append : keys) {
          FixedColumn& pair = rows.fixed(2);
          append(pair.at(0));
          pair.at(1).integer(number++);
          pair.end();
        }
      },
      "dict");
}

HashIndex dict_of(const std::vector<std::function<void(Column&)>>& keys) { return HashIndex::of(file_of_dict(keys)); }

std::function<void(Column&)> text(std::string value) {
  return [value](Column& column) { column.text(value); };
}
std::function<void(Column&)> integer(std::int64_t value) {
  return [value](Column& column) { column.integer(value); };
}
std::string bytes_of(std::vector<unsigned> bytes) { return {bytes.begin(), bytes.end()}; }

}  // namespace

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
}

TEST_CASE("a list has no index") {
  CHECK_THROWS_AS(HashIndex::of(testing::file_of([](Column& rows) { rows.integer(1); })), FormatError);
}

TEST_CASE("the seeded hash is the one of the format's page") {
  // By an implementation in Python whose rounds agree with CPython's own SipHash-1-3.
  CHECK(Key::of(std::int64_t{1}).hash(records::HashSeed{1, 2}) == 0x9DC3020C0FC457C0U);
  CHECK(Key::of(std::string_view("a.jpg")).hash(records::HashSeed{1, 2}) == 0x475E6D3C53D2BFA2U);
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
  const auto hash_of = [&](unsigned number) { return Key::of_bytes(key_of(number)).hash(); };
  REQUIRE(hash_of(0) == hash_of(1));
  REQUIRE(hash_of(0) == hash_of(4095));
  std::vector<std::function<void(Column&)>> keys;
  for (unsigned number = 0; number < 4096; ++number)
    keys.emplace_back([key = key_of(number)](Column& column) { column.bytes(std::as_bytes(std::span(key))); });
  const auto file = file_of_dict(keys);
  CHECK(file.arrays().index().find(HashIndex::tensor) == nullptr);
  REQUIRE(file.arrays().index().find(HashIndex::seeded_tensor) != nullptr);
  const auto index = HashIndex::of(file);
  for (unsigned number = 0; number < 4096; ++number) CHECK(index.find(Key::of_bytes(key_of(number))) == number);
  CHECK(!index.find(Key::of_bytes("none")));
  CHECK(!index.find(Key::of_bytes(key_of(5).substr(8))));
  keys.push_back(keys[17]);
  CHECK_THROWS_AS(dict_of(keys), FormatError);
}

TEST_CASE("200,000 keys of an ordinary kind are found") {
  std::vector<std::function<void(Column&)>> keys;
  for (std::int64_t number = 0; number < 100'000; ++number) keys.push_back(integer(number * 4096));
  for (int number = 0; number < 100'000; ++number) keys.push_back(text("image/" + std::to_string(number) + ".jpg"));
  CHECK(dict_of(keys).find(Key::of(std::string_view("image/77.jpg"))) == 100'077);
}

}  // namespace onecopy
