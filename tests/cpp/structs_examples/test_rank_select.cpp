// The twin: a std::vector<bool>, and counting.
#include "in_every_mode.hpp"
#include "precompiled.hpp"
#include "rank_select.hpp"

using example::RankSelect;
using onecopy::testing::in_every_mode;

namespace {

std::vector<std::uint64_t> packed(const std::vector<bool>& bits) {
  std::vector<std::uint64_t> words((bits.size() + 63) / 64);
  for (std::size_t i = 0; i < bits.size(); ++i) words[i / 64] |= std::uint64_t{bits[i]} << (i % 64);
  return words;
}

void check_every_answer(const std::vector<bool>& bits) {
  in_every_mode(RankSelect::build(packed(bits), bits.size()), [&](const RankSelect& found) {
    REQUIRE(found.size == bits.size());
    std::uint64_t ones = 0;
    bool same = true;
    for (std::size_t i = 0; i < bits.size(); ++i) {
      same = same && found[i] == bits[i] && found.rank(i) == ones;
      if (bits[i]) same = same && found.select(ones++) == i;
    }
    CHECK(same);
    CHECK(found.rank(bits.size()) == ones);
    CHECK(found.ones() == ones);
  });
}

std::vector<bool> random_bits(std::size_t size, unsigned ones_of_256, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<bool> bits(size);
  for (std::size_t i = 0; i < size; ++i) bits[i] = random() % 256 < ones_of_256;
  return bits;
}

}  // namespace

TEST_CASE(
    "rank and select agree with counting, around the boundaries of words and blocks, where ones are rare or dense") {
  for (const std::size_t size :
       {0U, 1U, 2U, 63U, 64U, 65U, 127U, 448U, 449U, 511U, 512U, 513U, 575U, 1023U, 1024U, 1025U, 100'000U})
    for (const unsigned ones_of_256 : {0U, 1U, 128U, 250U, 256U}) {
      CAPTURE(size);
      CAPTURE(ones_of_256);
      check_every_answer(random_bits(size, ones_of_256, size + ones_of_256));
    }
  std::vector<bool> corners(1'000'000);
  for (std::size_t i = 0; i < 5000; ++i) corners[i] = corners[corners.size() - 1 - i] = true;
  check_every_answer(corners);
}

TEST_CASE("bits behind the size count nothing, and fewer words than bits are refused") {
  const auto found = RankSelect::build({~std::uint64_t{0}, ~std::uint64_t{0}}, 65);
  CHECK(found.ones() == 65);
  CHECK(found.rank(65) == 65);
  CHECK(found.select(64) == 64);
  CHECK_THROWS_AS(RankSelect::build({1}, 65), std::invalid_argument);
}

TEST_CASE("the directory that rank needs is warmed and opened on its own") {
  const auto bits = random_bits(1'000'000, 128, 1);
  const onecopy::testing::ScratchFolder folder;
  const auto path = folder / "bits.oc";
  const auto built = RankSelect::build(packed(bits), bits.size());
  onecopy::save(path, built);
  const auto file = onecopy::open<RankSelect>(path);
  const auto sizes = onecopy::byte_size(built);
  const auto warmed = file.warm<&RankSelect::ranks>().bytes;  // whole pages
  CHECK(warmed >= sizes.of("ranks"));
  CHECK(warmed < sizes.bytes / 2);
  const auto part = onecopy::open<&RankSelect::ranks>(path);
  CHECK(part->ones() == built.ones());
  CHECK(part->before(1000) == built.rank(64'000));
}
