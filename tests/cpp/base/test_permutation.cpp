#include "onecopy/base/permutation.hpp"
#include "precompiled.hpp"

namespace onecopy {
namespace {

constexpr std::uint64_t largest = std::numeric_limits<std::uint64_t>::max();

}  // namespace

// That each order is one, and which, is in packages/records/tests/test_shuffle.py.
static_assert(Permutation(1'000'000'000'000, 42, 7)[123'456'789] == 372'324'284'045);

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
