#include "onecopy/base/error.hpp"
#include "onecopy/page_cache/warm.hpp"
#include "os/os.hpp"
#include "page_cache/ranges.hpp"
#include "page_cache/warm_plan.hpp"
#include "precompiled.hpp"
#include "pretend_pages.hpp"
#include "scratch_folder.hpp"

namespace onecopy {
namespace {

constexpr std::uint64_t mib = std::uint64_t{1} << 20U;

}  // namespace

TEST_CASE("whole_pages sorts, merges and stays inside") {
  std::optional<testing::PretendPages> pretended(4096);
  const std::vector<ByteRange> asked{{9000, 10}, {0, 5000}, {5000, 1}, {100'000, 50}, {1'000'000, 5}, {7, 0}};
  const auto pages = whole_pages(asked, 100'020, 0);
  CHECK(pages == std::vector<ByteRange>{{0, 12288}, {98304, 1716}});
  CHECK(whole_pages(everything, 77, 0) == std::vector<ByteRange>{{0, 77}});
  CHECK(whole_pages(std::vector<ByteRange>{}, 77, 0).empty());
  // A mapping that begins in the middle of a page: pages are those of the file.
  CHECK(whole_pages(std::array{ByteRange{4000, 1}}, 10'000, 100) == std::vector<ByteRange>{{3996, 4096}});
  pretended.emplace(16384);
  CHECK(whole_pages(asked, 100'020, 0) == std::vector<ByteRange>{{0, 16384}, {98304, 1716}});
}

TEST_CASE("a mode is chosen by where the file lies and what memory there is, and says why") {
  const auto choose = [](os::Storage storage, const char* name, std::uint64_t size, std::uint64_t available,
                         std::uint64_t ahead = 0) {
    return choose_mode(
        {.file_size = size, .available = available, .read_ahead = ahead, .file_system = os::FileSystem{storage, name}});
  };
  CHECK(choose(os::Storage::local, "", 500, 1000, 8 * mib).huge);
  CHECK(choose(os::Storage::local, "", 500, 1000, 8 * mib).reason.find("reads ahead 8.0 MiB") != std::string::npos);
  CHECK_FALSE(choose(os::Storage::local, "", 501, 1000, 8 * mib).huge);
  CHECK_FALSE(choose(os::Storage::local, "", 500, 1000, 128 * 1024).huge);
  CHECK_FALSE(choose(os::Storage::memory, "tmpfs", 500, 1000, 8 * mib).huge);
  CHECK(choose(os::Storage::local, "", 1, 1000).mode == Mode::map);
  CHECK(choose(os::Storage::memory, "tmpfs", 1, 1000).mode == Mode::map);
  CHECK(choose(os::Storage::remote, "nfs", 250, 1000).mode == Mode::copy);
  CHECK(choose(os::Storage::remote, "nfs", 251, 1000).mode == Mode::map);
  CHECK(choose(os::Storage::remote, "nfs", 250, 1000).reason.find("nfs") != std::string::npos);
  CHECK(choose_mode({.file_size = 1, .file_system = os::FileSystem{os::Storage::remote, "fuse"}}).mode == Mode::map);
  CHECK(choose_mode({.file_size = 1, .available = 1000}).mode == Mode::map);
  const testing::ScratchFolder folder;
  CHECK(!choose_mode(folder.write("data", testing::random_bytes(10))).reason.empty());
  CHECK_THROWS_AS(choose_mode(folder / "missing"), OsError);
}

TEST_CASE("huge pages are asked for where at least half of one is wanted") {
  using List = std::vector<ByteRange>;
  constexpr std::uint64_t size = 7 * mib;
  CHECK(huge_parts(List{{0, size}}, size, 4096) == List{{0, size}});
  CHECK(huge_parts(List{{0, 100}}, 100, 4096) == List{{0, 100}});
  CHECK(huge_parts(List{{2 * mib, 4096}}, size, 0).empty());
  CHECK(huge_parts(List{{3 * mib, 2 * mib}}, size, 0) == List{{2 * mib, 4 * mib}});
  CHECK(huge_parts(List{{3 * mib + 4096, 2 * mib - 8192}}, size, 0).empty());
  CHECK(huge_parts(List{{2 * mib + mib / 2, mib - 4096}}, size, 0).empty());
  CHECK(huge_parts(List{{mib, 2 * mib}}, size, mib) == List{{mib, 2 * mib}});
  CHECK(huge_parts(List{{size - mib, mib}}, size, 0) == List{{6 * mib, mib}});
}

TEST_CASE("a range is isolated where read-ahead would read too much around it") {
  using List = std::vector<ByteRange>;
  constexpr std::uint64_t size = 100 * mib;
  CHECK(isolated_ranges(List{{0, size}}, size, 4 * mib, 4).empty());
  CHECK(isolated_ranges(List{{10 * mib, 16 * mib}}, size, 4 * mib, 4).empty());
  CHECK(isolated_ranges(List{{10 * mib, 16 * mib - 4096}}, size, 4 * mib, 4).size() == 1);
  CHECK(isolated_ranges(List{{4096, size - 4096}}, size, 4 * mib, 4).empty());  // a header is no gap to speak of
  CHECK(isolated_ranges(List{{0, mib}, {mib + 4096, mib}, {9 * mib, mib}}, size, 4 * mib, 4) ==
        List{{mib + 4096, mib}, {9 * mib, mib}});
  CHECK(isolated_ranges(List{{size - mib, mib}}, size, 3 * mib, 4).size() == 1);
  CHECK(isolated_ranges(List{{size - 4 * mib, 4 * mib}}, size, 3 * mib, 4).empty());  // nothing is behind the end
  CHECK(isolated_ranges(List{{0, 8 * mib}}, size, 3 * mib, 4).empty());
  CHECK(isolated_ranges(List{{0, 8 * mib - 4096}}, size, 3 * mib, 4).size() == 1);
}

TEST_CASE("the plan follows what was measured, and says why") {
  Conditions conditions{.file_size = 4096 * mib, .available = 20'000 * mib, .read_ahead = 128 * 1024};
  conditions.missing = conditions.file_size;
  CHECK(choose(conditions, {}).mechanism == Mechanism::populate);
  CHECK(choose(conditions, {}).huge);
  CHECK(choose(conditions, {}).overshoot == 4 * mib);
  CHECK(choose(conditions, {}).at_once == 128 * 1024);

  SUBCASE("small pages are read ahead as far as the device does, and what is asked for stays as asked") {
    WarmOptions small{.huge = Huge::no};
    conditions.read_ahead = 8 * mib;
    CHECK(choose(conditions, small).overshoot == 12 * mib);
    CHECK(choose(conditions, small).at_once == 8 * mib);
    conditions.read_ahead = std::nullopt;
    CHECK(choose(conditions, small).at_once == 128 * 1024);
    small.huge = Huge::yes;
    CHECK(choose(conditions, small).overshoot == 0);
  }
  SUBCASE("files larger than half of the memory stay in small pages") {
    conditions.available = 8000 * mib;
    const auto plan = choose(conditions, {});
    CHECK(!plan.huge);
    CHECK(plan.reason.find("4.0 GiB is more than half of the 7.8 GiB") != std::string::npos);
    CHECK(choose(conditions, {.huge = Huge::yes}).huge);
  }
  SUBCASE("a file larger than memory is not pushed through it") {
    conditions.available = 1000 * mib;
    CHECK(choose(conditions, {}).most < 1000 * mib);
    CHECK(choose(conditions, {}).most > 900 * mib);
  }
  SUBCASE("in a tight group few threads read, and something is left for what the kernel reads ahead") {
    conditions.available = 80 * mib;
    conditions.read_ahead = 8 * mib;
    CHECK(choose(conditions, {}).threads == 2);
    CHECK(choose(conditions, {}).most == 48 * mib);
    conditions.available = 12 * mib;
    CHECK(choose(conditions, {}).threads == 1);
    CHECK(choose(conditions, {}).most == 0);
    conditions.available.reset();
    CHECK(choose(conditions, {}).threads == 8);
    CHECK(choose(conditions, {}).most > 4096 * mib);
  }
  SUBCASE("with a large read-ahead and use in order, only huge pages help") {
    conditions.read_ahead = 8 * mib;
    WarmOptions in_order{.in_order = true};
    CHECK(choose(conditions, in_order).mechanism == Mechanism::advise);
    in_order.huge = Huge::no;
    CHECK(choose(conditions, in_order).mechanism == Mechanism::none);
    conditions.read_ahead = 128 * 1024;
    CHECK(choose(conditions, in_order).mechanism == Mechanism::populate);
  }
  SUBCASE("a file system that takes long to answer is asked in small pieces, by more threads if memory allows") {
    const auto fast = choose(conditions, {});
    CHECK(!fast.slow);
    CHECK(fast.most_threads == fast.threads);
    conditions.file_system = os::FileSystem{os::Storage::remote, "nfs"};
    conditions.latency = 0.0003;
    CHECK(choose(conditions, {}).slow);
    CHECK(choose(conditions, {}).reason.find("on nfs that answers after 0.3 ms") != std::string::npos);
    CHECK(choose(conditions, {}).piece == step_size);
    CHECK(choose(conditions, {}).threads == 8);
    CHECK(choose(conditions, {}).most_threads == 64);
    conditions.available = 160 * mib;
    CHECK(choose(conditions, {}).most_threads == 20);
    CHECK(choose(conditions, {.threads = 3}).most_threads == 3);
    conditions.file_system = os::FileSystem{os::Storage::local, "ext4"};
    CHECK(!choose(conditions, {}).slow);
    conditions.latency = 0.008;
    CHECK(choose(conditions, {}).reason.find("a disk that answers after 8 ms") != std::string::npos);
  }
  SUBCASE(
      "twice as many threads read as long as that is worth it and CPUs are free, and half of them where they are "
      "short") {
    const double mb = 1e6;
    CHECK(next_threads({.threads = 8, .rate = 100 * mb}, 0, 64) == 16);
    CHECK(next_threads({.threads = 16, .rate = 130 * mb}, 100 * mb, 64) == 32);
    CHECK(next_threads({.threads = 16, .rate = 110 * mb}, 100 * mb, 64) == 16);
    CHECK(next_threads({.threads = 16, .rate = 200 * mb}, 100 * mb, 20) == 20);
    CHECK(next_threads({.threads = 8, .rate = 100 * mb, .cpu_wait = 0.12}, 0, 64) == 8);
    CHECK(next_threads({.threads = 16, .rate = 300 * mb, .cpu_wait = 0.4}, 100 * mb, 64) == 8);
    CHECK(next_threads({.threads = 8, .rate = 100 * mb, .cpu_wait = 0.3}, 0, 64) == 4);
    CHECK(next_threads({.threads = 4, .rate = 100 * mb, .cpu_wait = 0.9}, 0, 64) == 4);
    CHECK(next_threads({.threads = 2, .rate = 100 * mb, .cpu_wait = 0.9}, 0, 64) == 2);  // as many as memory allows
  }
  SUBCASE("what is only read is too large from half of the memory on") {
    const WarmOptions nothing{.mechanism = Mechanism::none};
    conditions.available = 2 * conditions.file_size;
    CHECK_FALSE(choose(conditions, nothing).too_large);
    conditions.available = 2 * conditions.file_size - 2;
    CHECK(choose(conditions, nothing).too_large);
    conditions.available = std::nullopt;
    CHECK_FALSE(choose(conditions, nothing).too_large);
  }
}

}  // namespace onecopy
