// Gathering many rows gives what reading them one by one gives.
#include "onecopy/records/take.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "file_of.hpp"
#include "onecopy/base/error.hpp"

namespace onecopy {
namespace {

using records::Column;
using records::Node;
using records::Places;
using testing::file_of;

std::vector<std::uint64_t> random_places(std::uint64_t rows, std::size_t count) {
  std::mt19937_64 random(7);
  std::vector<std::uint64_t> places(count);
  for (auto& place : places) place = random() % rows;
  return places;
}

template <class T>
std::vector<T> taken(const Node& node, Places places) {
  std::vector<T> values(places.size());
  REQUIRE(records::number_type(node).has_value());
  REQUIRE(bits(*records::number_type(node)) == sizeof(T) * 8);
  take_numbers(node, places, std::as_writable_bytes(std::span(values)));
  return values;
}

std::vector<std::int64_t> offsets_of(const Node& node, Places places) {
  std::vector<std::int64_t> offsets(places.size() + 1);
  take_offsets(node, places, offsets);
  return offsets;
}

template <class T>
void check_integers(std::int64_t largest) {
  const auto file = file_of([&](Column& rows) {
    for (std::int64_t i = 0; i < 1000; ++i) rows.integer(i == 999 ? largest : i % 100 - 50);
  });
  const auto places = random_places(1000, 3000);
  const auto values = taken<T>(file.rows(), places);
  for (std::size_t k = 0; k < places.size(); ++k) CHECK(values[k] == file.rows().data.signed_at(places[k]));
}

}  // namespace

TEST_CASE("integers of every width are gathered as they are") {
  check_integers<std::int8_t>(0);
  check_integers<std::int16_t>(1 << 10);
  check_integers<std::int32_t>(1 << 20);
  check_integers<std::int64_t>(std::int64_t{1} << 60);
}

TEST_CASE("numbers with nulls among them become F64 with NaN, booleans bytes") {
  const auto numbers = file_of([](Column& rows) {
    for (int i = 0; i < 100; ++i) i % 3 == 0 ? rows.null() : rows.integer(i);
  });
  const auto places = random_places(100, 300);
  const auto values = taken<double>(numbers.rows(), places);
  for (std::size_t k = 0; k < places.size(); ++k)
    if (places[k] % 3 == 0)
      CHECK(std::isnan(values[k]));
    else
      CHECK(values[k] == static_cast<double>(places[k]));

  const auto booleans = file_of([](Column& rows) {
    for (int i = 0; i < 100; ++i) rows.boolean(i % 7 == 0);
  });
  const auto bytes = taken<std::uint8_t>(booleans.rows(), places);
  for (std::size_t k = 0; k < places.size(); ++k) CHECK(bytes[k] == (places[k] % 7 == 0 ? 1 : 0));
}

TEST_CASE("what has no numbers says so") {
  const auto text = file_of([](Column& rows) { rows.text("a"); });
  CHECK_FALSE(records::number_type(text.rows()).has_value());
  const auto maybe = file_of([](Column& rows) { rows.boolean(true), rows.null(); });
  CHECK_FALSE(records::number_type(maybe.rows()).has_value());
}

TEST_CASE("lists of numbers are gathered as values and offsets, a null as no items") {
  const auto file = file_of([](Column& rows) {
    for (int i = 0; i < 200; ++i) {
      if (i % 10 == 3) {
        rows.null();
        continue;
      }
      auto& list = rows.list();
      for (int item = 0; item < i % 5; ++item) list.items().real(i + item / 8.0);
      list.end();
    }
  });
  const Node& node = file.rows();
  const auto places = random_places(200, 500);
  const auto offsets = offsets_of(node, places);
  std::vector<double> values(static_cast<std::size_t>(offsets.back()));
  take_item_numbers(node, places, std::as_writable_bytes(std::span(values)));
  std::size_t at = 0;
  for (std::size_t k = 0; k < places.size(); ++k) {
    const auto i = static_cast<int>(places[k]);
    const int size = i % 10 == 3 ? 0 : i % 5;
    CHECK(offsets[k + 1] - offsets[k] == size);
    for (int item = 0; item < size; ++item) CHECK(values[at++] == i + item / 8.0);
  }
  const auto items = item_places(node, places, values.size());
  REQUIRE(items.size() == values.size());
  for (std::size_t k = 0; k < items.size(); ++k) CHECK(node.children[0].real(items[k]) == values[k]);
}

TEST_CASE("text is gathered as bytes and offsets") {
  const auto file = file_of([](Column& rows) {
    for (int i = 0; i < 100; ++i)
      rows.text(std::string(static_cast<std::size_t>(i % 40), static_cast<char>('a' + i % 26)));
  });
  const auto places = random_places(100, 300);
  const auto offsets = offsets_of(file.rows(), places);
  std::string bytes(static_cast<std::size_t>(offsets.back()), ' ');
  take_items(file.rows(), places, std::as_writable_bytes(std::span(bytes)));
  std::string expected;
  for (const auto place : places) expected += file.rows().text(place);
  CHECK(bytes == expected);
}

TEST_CASE("no rows give no bytes, and one offset") {
  const auto file = file_of([](Column& rows) { rows.text("a"); });
  CHECK(offsets_of(file.rows(), {}) == std::vector<std::int64_t>{0});
  take_items(file.rows(), {}, {});
}

TEST_CASE("memory that is too small for the items is not overrun") {
  const auto file = file_of([](Column& rows) { rows.text("abc"); });
  const std::vector<std::uint64_t> places{0, 0};
  std::vector<std::byte> small(5);
  CHECK_THROWS_AS(take_items(file.rows(), places, small), FormatError);
}

}  // namespace onecopy
