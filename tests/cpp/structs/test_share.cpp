// A value in a memory file: another process opens its descriptor, and keeps it when the first is killed.
#include <numeric>

#include "children.hpp"
#include "onecopy/base/error.hpp"
#include "onecopy/structs/structs.hpp"
#include "precompiled.hpp"

using onecopy::OwningSpan;

namespace {

struct Index {
  std::uint64_t seed = 4;
  OwningSpan<std::uint64_t> words;
  std::vector<std::string> names;
};

Index index(std::size_t words) {
  Index one;
  std::vector<std::uint64_t> all(words);
  std::iota(all.begin(), all.end(), std::uint64_t{0});
  one.words = std::move(all);
  one.names = {"a", "b"};
  return one;
}

}  // namespace

TEST_CASE("a shared value is read in place, and cannot be written") {
  const auto shared = onecopy::share(index(1'000'000), {.name = "test-index"});
  CHECK(shared->words[999'999] == 999'999);
  CHECK(shared->names[1] == "b");
  CHECK(shared.mapping()->path() == "test-index");
  CHECK(shared.verify().bytes > 8'000'000);
  REQUIRE(shared.report().collapsed);
  CHECK_FALSE(shared.report().collapsed->reason.empty());
  if (shared.mapping()->sealed()) CHECK(::ftruncate(shared.descriptor(), 0) != 0);
}

TEST_CASE("the descriptor opens as the same type, and as another it is refused") {
  const auto shared = onecopy::share(index(10));
  const auto again = onecopy::open<Index>(shared.descriptor());
  CHECK(again->words == shared->words);
  const auto copied = onecopy::open<Index>(shared.descriptor(), "copy", {.mode = onecopy::Mode::copy});
  CHECK(copied->words == shared->words);
  CHECK_THROWS_WITH_AS(onecopy::open<std::vector<int>>(shared.descriptor(), "the index"),
                       doctest::Contains("the index: 'value'"), onecopy::FormatError);
  CHECK_THROWS_AS(onecopy::open<Index>(-1), onecopy::OsError);
}

TEST_CASE("another process has it by /proc, and keeps it when the first is killed") {
  onecopy::testing::Child builder([] {
    static const auto shared = onecopy::share(index(100'000));
    return shared.descriptor();
  });
  const std::string path = "/proc/" + std::to_string(builder.pid()) + "/fd/" + std::to_string(builder.said());
  const auto theirs = onecopy::open<Index>(path);
  builder.kill();
  CHECK(std::accumulate(theirs->words.begin(), theirs->words.end(), std::uint64_t{0}) == 100'000ULL * 99'999 / 2);
  CHECK_THROWS_AS(onecopy::open<Index>(path), onecopy::OsError);
}
