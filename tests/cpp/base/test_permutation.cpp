#include "onecopy/base/permutation.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <vector>

namespace onecopy {
namespace {

constexpr std::uint64_t largest = std::numeric_limits<std::uint64_t>::max();

std::vector<std::uint64_t> all_of(const Permutation& permutation) {
  std::vector<std::uint64_t> values(permutation.size());
  permutation.fill(0, 1, values);
  return values;
}

}  // namespace

TEST_CASE("every size up to 1000 gives every number once, and index_of finds it") {
  for (std::uint64_t size = 0; size <= 1000; ++size) {
    const Permutation permutation(size, size * 7, 3);
    std::vector<bool> seen(size);
    for (std::uint64_t position = 0; position < size; ++position) {
      const std::uint64_t value = permutation[position];
      REQUIRE(value < size);
      CHECK_FALSE(seen[value]);
      seen[value] = true;
      CHECK(permutation.index_of(value) == position);
    }
  }
}

TEST_CASE("sizes around every power of two are inverted, up to 64 bits") {
  for (unsigned bit = 1; bit < 64; ++bit) {
    for (const std::uint64_t size :
         {(std::uint64_t{1} << bit) - 1, std::uint64_t{1} << bit, (std::uint64_t{1} << bit) + 1}) {
      const Permutation permutation(size, 1, bit);
      for (const std::uint64_t position : {std::uint64_t{0}, size / 3, size / 2, size - 1}) {
        const std::uint64_t value = permutation[position];
        CHECK(value < size);
        CHECK(permutation.index_of(value) == position);
      }
    }
  }
  const Permutation whole(largest, largest, largest);
  CHECK(whole.index_of(whole[largest - 1]) == largest - 1);
}

TEST_CASE("the order is part of the interface") {
  CHECK(all_of({10, 0, 0}) == std::vector<std::uint64_t>{3, 4, 1, 9, 7, 2, 8, 5, 0, 6});
  static_assert(Permutation(1'000'000'000'000, 42, 7)[123'456'789] == 372'324'284'045);
}

TEST_CASE("seed, epoch and size each give another order") {
  const auto base = all_of({300, 5, 6});
  CHECK(base == all_of({300, 5, 6}));
  CHECK(base != all_of({300, 6, 5}));
  CHECK(base != all_of({300, 5, 7}));
  CHECK(base != all_of({300, 4, 6}));
  auto longer = all_of({301, 5, 6});
  std::erase(longer, std::uint64_t{300});
  CHECK(base != longer);
}

TEST_CASE("fill goes in steps of either sign, and refuses to leave the permutation") {
  const Permutation permutation(100, 1, 1);
  std::array<std::uint64_t, 4> values{};
  for (const std::int64_t step : {1, 33, -33, 0, -1}) {
    const std::uint64_t first = step < 0 ? 99 : 0;
    permutation.fill(first, step, values);
    for (std::size_t i = 0; i < values.size(); ++i)
      CHECK(values[i] == permutation[static_cast<std::uint64_t>(static_cast<std::int64_t>(first) +
                                                                step * static_cast<std::int64_t>(i))]);
  }
  using limits = std::numeric_limits<std::int64_t>;
  CHECK_THROWS_AS(permutation.fill(100, 0, values), std::out_of_range);
  CHECK_THROWS_AS(permutation.fill(1, 33, values), std::out_of_range);
  CHECK_THROWS_AS(permutation.fill(98, -33, values), std::out_of_range);
  CHECK_THROWS_AS(permutation.fill(0, limits::max(), values), std::out_of_range);
  CHECK_THROWS_AS(permutation.fill(0, limits::min(), values), std::out_of_range);
  CHECK_THROWS_AS(permutation.fill(largest, 1, values), std::out_of_range);
  permutation.fill(largest, limits::min(), std::span(values).first(0));
}

}  // namespace onecopy
