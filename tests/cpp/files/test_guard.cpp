#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "onecopy/base/error.hpp"
#include "onecopy/files/mapping.hpp"
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

TEST_CASE("mappings come and go in many threads while pages are lost") {
  const testing::ScratchFolder folder;
  guard();
  std::atomic<int> right = 0;
  std::vector<std::jthread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&folder, &right, thread] {
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
