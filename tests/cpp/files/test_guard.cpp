#include "onecopy/base/error.hpp"
#include "onecopy/files/mapping.hpp"
#include "precompiled.hpp"
#include "scratch_folder.hpp"

namespace onecopy {
namespace {

constexpr std::uint64_t size = 300'000;
constexpr std::uint64_t left = 100'001;

std::optional<std::uint64_t> lost_from() {
  try {
    check();
  } catch (const DataLost& error) {
    return error.offset();
  }
  return std::nullopt;
}

}  // namespace

TEST_CASE_FIXTURE(InFolder,
                  "pages behind the end of a truncated file are zeros, reported until it is closed, and once after") {
  const std::vector<std::byte> content(size, std::byte{0xFF});
  const auto path = folder.write("data", content);
  guard();
  guard();
  CHECK_FALSE(lost_from());
  {
    const auto mapping = Mapping::open(path);
    const auto other = Mapping::open(folder.write("other", content));
    CHECK_FALSE(mapping.loss());
    for (const std::uint64_t length : {size - 1, left}) {
      std::filesystem::resize_file(path, length);
      CHECK(lost_from() == length);  // nothing was touched
    }
    CHECK_FALSE(mapping.loss());
    CHECK(std::ranges::count(mapping.bytes(), std::byte{0xFF}) == left);
    REQUIRE(mapping.loss());
    CHECK(mapping.loss()->offset == left);
    CHECK(mapping.loss()->truncated);
    CHECK_THROWS_AS(expect_whole(mapping), DataLost);
    CHECK_NOTHROW(expect_whole(other));
    CHECK(lost_from() == left);
    CHECK(lost_from() == left);
  }
  CHECK(lost_from() == left);
  CHECK_FALSE(lost_from());
  // Later mappings, which the handler knows by the same places, have lost nothing.
  const auto later = Mapping::open(folder.write("later", content));
  const auto last = Mapping::open(folder.write("last", content));
  CHECK_FALSE(later.loss());
  CHECK_FALSE(last.loss());
  CHECK_FALSE(lost_from());
  constexpr std::uint64_t whole_pages = 131'072;
  {
    const auto cut = Mapping::open(folder.write("cut", content));
    std::filesystem::resize_file(cut.path(), whole_pages);
    CHECK(cut.bytes()[whole_pages] == std::byte{0});
    REQUIRE(cut.loss());
    CHECK(cut.loss()->truncated);
  }
  CHECK(lost_from() == whole_pages);
  for (std::uint64_t length = 1; length <= 66; ++length) {
    const auto cut = Mapping::open(folder.write("cut", content));
    std::filesystem::resize_file(cut.path(), length);
    CHECK(cut.bytes().back() == std::byte{0});
  }
  for (std::uint64_t length = 3; length <= 66; ++length) CHECK(lost_from() == length);  // the last 64
  CHECK_FALSE(lost_from());
}

TEST_CASE_FIXTURE(InFolder, "mappings come and go in many threads while pages are lost") {
  guard();
  std::atomic<int> right = 0;
  std::vector<std::jthread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([this, &right, thread] {
      const auto path = folder.write("data" + std::to_string(thread), std::vector<std::byte>(size, std::byte{1}));
      for (int round = 0; round < 50; ++round) {
        std::filesystem::resize_file(path, size);
        const auto mapping = Mapping::open(path);
        std::filesystem::resize_file(path, left);
        const auto seen = std::ranges::count(mapping.bytes(), std::byte{1});  // used, so that the pages are read
        if (seen == left && mapping.loss() && mapping.loss()->offset == left) ++right;  // CHECK is not for threads
      }
    });
  }
  threads.clear();
  CHECK(right == 4 * 50);
  while (lost_from() == left) {
  }
  CHECK_FALSE(lost_from());
}

}  // namespace onecopy
