// Gathering numbers from many rows, and what is refused; other types are in
// packages/records/tests/test_records_take.py.
#include "onecopy/records/take.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <random>
#include <vector>

#include "file_of.hpp"
#include "onecopy/base/error.hpp"

namespace onecopy {
namespace {

using records::Column;
using testing::file_of;

// Number k of what was taken in a type, as a real.
double number_at(std::span<const std::byte> taken, DType type, std::uint64_t k) {
  const records::Numbers numbers{taken.data(), static_cast<unsigned>(bits(type) / 8)};
  return type == DType::f64 ? numbers.load<double>(k) : static_cast<double>(numbers.signed_at(k));
}

}  // namespace

TEST_CASE("what is taken from rows, and from the lists in them, are the values at these places") {
  constexpr std::uint64_t count = 1000;
  std::mt19937_64 random(5);
  std::vector<std::uint64_t> places(300);
  for (auto& place : places) place = random() % count;
  for (const auto& [width, nulls] : std::initializer_list<std::pair<int, bool>>{
           {7, false}, {15, false}, {31, false}, {63, false}, {31, true}, {0, false}, {0, true}}) {
    const auto add = [=](Column& column, std::uint64_t i) {  // width 0: reals
      const auto value = static_cast<std::int64_t>(i * 0x9E3779B97F4A7C15U) >> (width == 0 ? 32 : 63 - width);
      if (nulls && i % 7 == 3) return column.null(), std::numeric_limits<double>::quiet_NaN();
      if (width != 0) return column.integer(value), static_cast<double>(value);
      return column.real(static_cast<double>(value) / 8), static_cast<double>(value) / 8;
    };
    std::vector<std::vector<double>> lists(count);
    const auto file = file_of([&](Column& rows) {
      for (std::uint64_t i = 0; i < count; ++i) {
        auto& list = rows.list();
        for (std::uint64_t j = 0; j < i % 5; ++j) lists[i].push_back(add(list.items(), i + j));
        list.end();
      }
    });
    const records::Node& items = file.rows().children[0];
    std::vector<std::int64_t> offsets(places.size() + 1);
    take_offsets(file.rows(), places, offsets);
    const DType type = number_type(items).value();
    std::vector<std::byte> taken(static_cast<std::size_t>(offsets.back()) * bits(type) / 8);
    take_item_numbers(file.rows(), places, taken);
    std::vector<std::byte> again(taken.size());
    take_numbers(items, item_places(file.rows(), places, static_cast<std::uint64_t>(offsets.back())), again);
    CHECK(testing::same_bytes(taken, again));
    std::uint64_t k = 0;
    for (std::size_t n = 0; n < places.size(); ++n) {
      CHECK(static_cast<std::uint64_t>(offsets[n]) == k);
      for (const double value : lists[places[n]]) {
        const double got = number_at(taken, type, k++);
        CHECK((got == value || (std::isnan(got) && std::isnan(value))));
      }
    }
  }
}

TEST_CASE("what has no numbers says so") {
  const auto text = file_of([](Column& rows) { rows.text("a"); });
  CHECK_FALSE(records::number_type(text.rows()).has_value());
  const auto maybe = file_of([](Column& rows) { rows.boolean(true), rows.null(); });
  CHECK_FALSE(records::number_type(maybe.rows()).has_value());
}

TEST_CASE("memory that is too small for the items is not overrun") {
  const auto file = file_of([](Column& rows) { rows.text("abc"); });
  const std::vector<std::uint64_t> places{0, 0};
  std::vector<std::byte> small(5);
  CHECK_THROWS_AS(take_items(file.rows(), places, small), FormatError);
}

}  // namespace onecopy
