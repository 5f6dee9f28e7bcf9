// A value in a memory file: another process opens its descriptor, and keeps it when the first is killed.
#include <numeric>

#include "children.hpp"
#include "onecopy/base/error.hpp"
#include "precompiled.hpp"
#include "scratch_folder.hpp"
#include "structs_index.hpp"

using fuzz::Index;

namespace {

Index index(std::size_t words) {
  std::vector<std::uint64_t> all(words);
  std::iota(all.begin(), all.end(), std::uint64_t{0});
  Index one;
  one.words = std::move(all);
  one.jagged = {{}, {7}};
  return one;
}

}  // namespace

TEST_CASE("a shared value is read in place, and its descriptor opens as the same type and can change nothing") {
  const auto shared = onecopy::share(index(1'000'000), {.name = "test-index"});
  CHECK(shared->words[999'999] == 999'999);
  CHECK(shared->jagged[1][0] == 7);
  CHECK(shared.mapping()->path() == "test-index");
  CHECK(shared.verify().bytes > 8'000'000);
  REQUIRE(shared.report().collapsed);
  CHECK_FALSE(shared.report().collapsed->reason.empty());
  if (shared.mapping()->sealed()) CHECK(::ftruncate(shared.descriptor(), 0) != 0);
  for (const auto mode : {onecopy::Mode::map, onecopy::Mode::copy}) {
    const auto again = onecopy::open<Index>(shared.descriptor(), "again", {.mode = mode});
    CHECK(again->words == shared->words);
  }
  CHECK_THROWS_WITH_AS(onecopy::open<std::vector<int>>(shared.descriptor(), "the index"),
                       doctest::Contains("the index: "), onecopy::FormatError);
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

TEST_CASE_FIXTURE(onecopy::AtPath,
                  "save and share write the caller's metadata, and checksums unless they are switched off") {
  for (const bool checksum : {true, false}) {
    const onecopy::SaveOptions options{.checksum = checksum, .metadata = {{"source", "reads.fa"}}};
    onecopy::save(path, index(10), options);
    const auto saved = onecopy::open<Index>(path);
    const auto shared = onecopy::share(index(10), {.collapse = false, .save = options});
    CHECK_FALSE(shared.report().collapsed);
    for (const auto* one : {&saved, &shared}) {
      CHECK(one->arrays().index().metadata().at("source") == "reads.fa");
      CHECK(one->arrays().index().checksums().present() == checksum);
    }
  }
}
