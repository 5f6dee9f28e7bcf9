#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <thread>

#include "onecopy/base/error.hpp"
#include "onecopy/files/atomic_writer.hpp"
#include "onecopy/residency/residency.hpp"
#include "onecopy/residency/warm.hpp"
#include "os/os.hpp"
#include "residency/plan.hpp"
#include "residency/ranges.hpp"
#include "scratch_folder.hpp"

namespace onecopy {
namespace {

constexpr std::uint64_t mib = std::uint64_t{1} << 20U;
constexpr std::uint64_t file_size = 48 * mib + 1234;

struct TestFile {
  testing::ScratchFolder folder;
  std::filesystem::path path = folder / "data";
  std::vector<std::byte> content = testing::random_bytes(file_size);

  TestFile() {
    AtomicWriter writer(path, content.size());
    writer.write(content);
    writer.commit();
  }
};

}  // namespace

TEST_CASE("a cold file is warmed, and a warm one is left alone") {
  const TestFile file;
  const auto mapping = Mapping::open(file.path);
  const auto gone = evict(mapping);
  if (gone.cached_after) REQUIRE(*gone.cached_after == 0);
  const auto report = warm(mapping);
  CHECK(report.complete);
  CHECK(report.bytes == file_size);
  CHECK(report.filled == file_size);
  CHECK(report.seconds > 0);
  CHECK(report.gib_per_s > 0);
  CHECK(report.threads >= 1);
  CHECK(!report.reason.empty());
  if (report.cached_after) CHECK(*report.cached_after == file_size);
  CHECK(std::ranges::equal(mapping.bytes(), file.content));
  const auto again = warm(mapping);
  CHECK(again.complete);
  if (again.cached_before) {
    CHECK(again.mechanism == Mechanism::none);
    CHECK(again.filled == 0);
    CHECK(again.reason == "already in memory");
  }
}

TEST_CASE("every mechanism fills the file, and says which it was") {
  const TestFile file;
  for (const Mechanism mechanism : {Mechanism::populate, Mechanism::read}) {
    for (const unsigned threads : {1U, 3U}) {
      const auto mapping = Mapping::open(file.path);
      (void)evict(mapping);
      WarmOptions options;
      options.mechanism = mechanism;
      options.threads = threads;
      const auto report = warm(mapping, {}, options);
      CHECK(report.complete);
      CHECK(report.threads == std::min(threads, 2U));  // 48 MiB are two pieces
      if (residency(mapping).source == Source::cachestat) {
        CHECK(report.mechanism == mechanism);
        CHECK(*report.cached_after == file_size);
      }
    }
  }
}

TEST_CASE("a range is rounded outwards, and the rest of the file stays cold") {
  const TestFile file;
  const auto mapping = Mapping::open(file.path);
  if (!evict(mapping).cached_after) return;
  WarmOptions options;
  options.huge = Huge::no;
  options.mechanism = Mechanism::populate;
  const ByteRange part{20 * mib + 5, 10};
  const auto report = warm(mapping, std::array{part}, options);
  CHECK(report.bytes == 4096);
  CHECK(*report.cached_after == 4096);
  CHECK(*residency(mapping).cached < file_size);
  CHECK(*residency(mapping, std::array{part}).cached == 4096);
}

TEST_CASE("a mapping of part of a file warms that part") {
  const TestFile file;
  MappingOptions options;
  options.offset = 7 * mib + 77;
  options.length = 9 * mib;
  const auto mapping = Mapping::open(file.path, options);
  (void)evict(Mapping::open(file.path));
  const auto report = warm(mapping);
  CHECK(report.complete);
  CHECK(report.bytes == 9 * mib);
  CHECK(std::ranges::equal(mapping.bytes(), Bytes(file.content).subspan(7 * mib + 77, 9 * mib)));
}

TEST_CASE("a budget ends the work early, and the report says so") {
  const TestFile file;
  const auto mapping = Mapping::open(file.path);
  if (!evict(mapping).cached_after) return;
  WarmOptions options;
  options.budget = 17 * mib;
  const auto report = warm(mapping, {}, options);
  CHECK(!report.complete);
  CHECK(report.filled <= 17 * mib);
  CHECK(report.filled > 0);
  CHECK(report.reason.find("budget of 17.0 MiB") != std::string::npos);
}

TEST_CASE("with random access expected, a touch reads its page and not what lies around it") {
  const TestFile file;
  const auto mapping = Mapping::open(file.path);
  const auto outcome = advise_random(mapping);
  const auto gone = evict(mapping);
  CHECK(mapping.bytes()[20 * mib] == file.content[20 * mib]);
  const auto cached = residency(mapping).cached;
  if (outcome == Outcome::applied && cached && gone.cached_after == 0) CHECK(*cached <= mib / 16);
  MappingOptions copied;
  copied.mode = Mode::copy;
  CHECK(advise_random(Mapping::open(file.path, copied)) == Outcome::unsupported);
}

TEST_CASE("a file truncated under its mapping is an error, not a signal") {
  for (const Mechanism mechanism : {Mechanism::populate, Mechanism::read}) {
    const TestFile file;
    const auto mapping = Mapping::open(file.path);
    (void)evict(mapping);
    std::filesystem::resize_file(file.path, 10 * mib);
    WarmOptions options;
    options.mechanism = mechanism;
    CHECK_THROWS_AS(warm(mapping, {}, options), DataLost);
    CHECK_THROWS_AS(residency(mapping), DataLost);
    CHECK_THROWS_AS(evict(mapping), DataLost);
    CHECK_THROWS_AS(pin(mapping), DataLost);
    CHECK(residency(mapping, std::array{ByteRange{0, 9 * mib}}).bytes == 9 * mib);  // what is left can be asked about
    CHECK(warm(mapping, std::array{ByteRange{0, 9 * mib}}, options).complete);
  }
}

TEST_CASE("a job runs beside other work, owns the mapping, and can be waited for by many") {
  const TestFile file;
  auto mapping = std::make_shared<const Mapping>(Mapping::open(file.path));
  (void)evict(*mapping);
  const std::weak_ptr<const Mapping> observer = mapping;
  {
    const auto job = WarmJob::start(std::move(mapping));
    std::jthread other([&] { CHECK(job.wait().complete); });
    CHECK(job.wait().complete);
    CHECK(job.done());
    CHECK(job.progress().done == job.progress().total);
    CHECK(!observer.expired());
  }
  CHECK(observer.expired());
}

TEST_CASE("a job over several files warms one after the other and reports on all as one") {
  const TestFile first;
  const TestFile second;
  const auto one = std::make_shared<const Mapping>(Mapping::open(first.path));
  const auto two = std::make_shared<const Mapping>(Mapping::open(second.path));
  (void)evict(*one);
  (void)evict(*two);
  std::vector<WarmPart> parts;
  parts.push_back({two, {{0, mib}}, nullptr});
  parts.push_back({one, {}, nullptr});
  const auto report = WarmJob::start(parts).wait();
  CHECK(report.complete);
  CHECK(report.bytes == mib + one->bytes().size());
  CHECK(report.reason.ends_with("2 files"));
  CHECK(residency(*one).cached.value_or(report.bytes) >= one->bytes().size());

  SUBCASE("the budget is one, and those that come first have it") {
    (void)evict(*one);
    (void)evict(*two);
    WarmOptions options;
    options.budget = mib;
    const auto part = WarmJob::start(std::move(parts), options).wait();
    CHECK(part.filled <= mib);
    CHECK((!part.complete || part.filled == 0));
  }
  SUBCASE("the first that fails ends it") {
    std::filesystem::resize_file(first.path, 4096);
    CHECK_THROWS_AS((void)WarmJob::start(std::move(parts)).wait(), DataLost);
  }
  SUBCASE("no files are nothing to do") { CHECK(WarmJob::start(std::vector<WarmPart>{}).wait().complete); }
}

TEST_CASE("a total is a sum, empty where one part is, and as bad as the worst") {
  Residency known;
  known.bytes = 8;
  known.cached = 4;
  known.source = Source::cachestat;
  auto unknown = known;
  unknown.cached = std::nullopt;
  unknown.source = Source::unknown;
  CHECK(total(std::array{known, known}).cached == 8);
  CHECK(total(std::array{known, known}).source == Source::cachestat);
  CHECK(total(std::array{known, unknown}).bytes == 16);
  CHECK(!total(std::array{known, unknown}).cached);
  CHECK(total(std::array{known, unknown}).source == Source::unknown);

  PinReport locked;
  locked.bytes = locked.pinned = 4096;
  locked.outcome = Outcome::applied;
  locked.reason = "locked";
  auto refused = locked;
  refused.pinned = 0;
  refused.outcome = Outcome::refused;
  refused.reason = "over the limit";
  const auto pins = total(std::array{locked, refused, locked});
  CHECK(pins.pinned == 8192);
  CHECK(pins.outcome == Outcome::refused);
  CHECK(pins.reason == "locked; over the limit; 3 files");

  WarmReport warmed;
  warmed.bytes = 100;
  warmed.huge_share = 1;
  warmed.complete = true;
  WarmReport cold;
  cold.bytes = 300;
  cold.huge_share = 0;
  const auto sum = total(std::array{warmed, cold, WarmReport{}});
  CHECK(sum.huge_share == doctest::Approx(0.25));
  CHECK(!sum.complete);
  CHECK(!sum.verified);
}

TEST_CASE("a job that is dropped or cancelled stops, and reports what it did") {
  const TestFile file;
  const auto mapping = std::make_shared<const Mapping>(Mapping::open(file.path));
  for (int round = 0; round < 20; ++round) {
    (void)evict(*mapping);
    auto job = WarmJob::start(mapping);
    if (round % 2 == 0) continue;  // dropped
    job.cancel();
    const auto report = job.wait();
    CHECK((report.complete || report.reason.ends_with("cancelled")));
  }
}

TEST_CASE("a job carries the error of its work") {
  const TestFile file;
  const auto mapping = std::make_shared<const Mapping>(Mapping::open(file.path));
  (void)evict(*mapping);
  std::filesystem::resize_file(file.path, 4096);
  CHECK_THROWS_AS((void)WarmJob::start(mapping).wait(), DataLost);
}

#if defined(__SANITIZE_THREAD__)
constexpr bool threads_after_fork = false;  // the thread sanitizer dies of them
#else
constexpr bool threads_after_fork = true;
#endif

TEST_CASE("a forked child neither waits for its parent's job nor hangs on dropping it") {
  const TestFile file;
  const auto mapping = std::make_shared<const Mapping>(Mapping::open(file.path));
  (void)evict(*mapping);
  for (int round = 0; round < 5; ++round) {
    auto job = WarmJob::start(mapping);
    const pid_t child = ::fork();
    if (child == 0) {
      int refused = 0;
      try {
        (void)job.wait();
      } catch (const OsError& error) {
        refused = error.code() == ECHILD ? 1 : 0;
      }
      {
        const WarmJob dropped = std::move(job);
      }
      const bool warmed = !threads_after_fork || warm(*mapping).complete;  // its own threads work
      ::_exit(refused == 1 && warmed ? 0 : 1);
    }
    int status = -1;
    ::waitpid(child, &status, 0);
    CHECK(status == 0);
    CHECK(job.wait().complete);
  }
}

TEST_CASE("private pages survive eviction with the caller's changes") {
  const TestFile file;
  MappingOptions options;
  options.private_pages = true;
  auto mapping = Mapping::open(file.path, options);
  mapping.private_bytes()[5 * mib] = std::byte{0x77};
  (void)evict(mapping);
  CHECK(mapping.bytes()[5 * mib] == std::byte{0x77});
}

TEST_CASE("a private copy has nothing to warm, and says so") {
  const TestFile file;
  MappingOptions options;
  options.mode = Mode::copy;
  const auto mapping = Mapping::open(file.path, options);
  const auto report = warm(mapping);
  CHECK(report.mechanism == Mechanism::none);
  CHECK(report.reason == "a private copy is in memory already");
}

TEST_CASE("pinning locks what the limit allows, and reports the rest") {
  const TestFile file;
  const auto mapping = Mapping::open(file.path);
  const auto small = pin(mapping, std::array{ByteRange{0, 8192}});
  CHECK(small.bytes == 8192);
  CHECK((small.pinned == 8192 || small.outcome != Outcome::applied));
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  const bool really = false;  // sanitizers make mlock do nothing
#else
  const bool really = small.pinned == 8192;
#endif
  if (really) {
    (void)evict(mapping);
    if (const auto cached = residency(mapping, std::array{ByteRange{0, 8192}}).cached) CHECK(*cached == 8192);
  }
  unpin(mapping);
}

TEST_CASE("whole_pages sorts, merges and stays inside") {
  const std::vector<ByteRange> asked{{9000, 10}, {0, 5000}, {5000, 1}, {100'000, 50}, {1'000'000, 5}, {7, 0}};
  const auto pages = whole_pages(asked, 100'020, 0);
  CHECK(pages == std::vector<ByteRange>{{0, 12288}, {98304, 1716}});
  CHECK(whole_pages({}, 77, 0) == std::vector<ByteRange>{{0, 77}});
  // A mapping that begins in the middle of a page: pages are those of the file.
  CHECK(whole_pages(std::array{ByteRange{4000, 1}}, 10'000, 100) == std::vector<ByteRange>{{3996, 4096}});
}

TEST_CASE("a mode is chosen by where the file lies and what memory there is, and says why") {
  const auto choose = [](os::Storage storage, const char* name, std::uint64_t size, std::uint64_t available,
                         std::uint64_t ahead = 0) {
    return choose_mode(FileConditions{size, os::FileSystem{storage, name}, available, ahead});
  };
  CHECK(choose(os::Storage::local, "", 500, 1000, 8 * mib).huge);
  CHECK(choose(os::Storage::local, "", 500, 1000, 8 * mib).reason.find("8.0 MiB ahead") != std::string::npos);
  CHECK_FALSE(choose(os::Storage::local, "", 501, 1000, 8 * mib).huge);
  CHECK_FALSE(choose(os::Storage::local, "", 500, 1000, 128 * 1024).huge);
  CHECK_FALSE(choose(os::Storage::memory, "tmpfs", 500, 1000, 8 * mib).huge);
  CHECK(choose(os::Storage::local, "", 1, 1000).mode == Mode::map);
  CHECK(choose(os::Storage::memory, "tmpfs", 1, 1000).mode == Mode::map);
  CHECK(choose(os::Storage::remote, "nfs", 250, 1000).mode == Mode::copy);
  CHECK(choose(os::Storage::remote, "nfs", 251, 1000).mode == Mode::map);
  CHECK(choose(os::Storage::remote, "nfs", 250, 1000).reason.find("nfs") != std::string::npos);
  CHECK(choose_mode(FileConditions{1, os::FileSystem{os::Storage::remote, "fuse"}, std::nullopt, std::nullopt}).mode ==
        Mode::map);
  CHECK(choose_mode(FileConditions{1, std::nullopt, 1000, std::nullopt}).mode == Mode::map);
  const testing::ScratchFolder folder;
  CHECK(!choose_mode(folder.write("data", testing::random_bytes(10))).reason.empty());
  CHECK_THROWS_AS(choose_mode(folder / "missing"), OsError);
}

TEST_CASE("huge pages are asked for where at least half of one is wanted") {
  using Ranges = std::vector<ByteRange>;
  constexpr std::uint64_t size = 7 * mib;
  CHECK(huge_parts(Ranges{{0, size}}, size, 0) == Ranges{{0, size}});
  CHECK(huge_parts(Ranges{{0, size}}, size, 4096) == Ranges{{0, size}});
  CHECK(huge_parts(Ranges{{0, 100}}, 100, 4096) == Ranges{{0, 100}});
  CHECK(huge_parts(Ranges{{2 * mib, 4096}}, size, 0).empty());
  CHECK(huge_parts(Ranges{{2 * mib, mib}}, size, 0) == Ranges{{2 * mib, 2 * mib}});
  CHECK(huge_parts(Ranges{{3 * mib, 2 * mib}}, size, 0) == Ranges{{2 * mib, 4 * mib}});
  CHECK(huge_parts(Ranges{{3 * mib + 4096, 2 * mib - 8192}}, size, 0).empty());
  CHECK(huge_parts(Ranges{{2 * mib + mib / 2, mib - 4096}}, size, 0).empty());
  CHECK(huge_parts(Ranges{{mib, 2 * mib}}, size, mib) == Ranges{{mib, 2 * mib}});
  CHECK(huge_parts(Ranges{{size - mib, mib}}, size, 0) == Ranges{{6 * mib, mib}});
}

TEST_CASE("what lies alone is what the kernel would read too much beside") {
  using Ranges = std::vector<ByteRange>;
  constexpr std::uint64_t size = 100 * mib;
  CHECK(lonely(Ranges{{0, size}}, size, 4 * mib, 4).empty());
  CHECK(lonely(Ranges{}, size, 4 * mib, 4).empty());
  CHECK(lonely(Ranges{{10 * mib, mib}}, size, 4 * mib, 4) == Ranges{{10 * mib, mib}});
  CHECK(lonely(Ranges{{10 * mib, 16 * mib}}, size, 4 * mib, 4).empty());
  CHECK(lonely(Ranges{{10 * mib, 16 * mib - 4096}}, size, 4 * mib, 4).size() == 1);
  CHECK(lonely(Ranges{{4096, size - 4096}}, size, 4 * mib, 4).empty());  // a header is no gap to speak of
  CHECK(lonely(Ranges{{0, mib}, {mib + 4096, mib}, {9 * mib, mib}}, size, 4 * mib, 4) ==
        Ranges{{mib + 4096, mib}, {9 * mib, mib}});
  CHECK(lonely(Ranges{{size - mib, mib}}, size, 3 * mib, 4).size() == 1);
  CHECK(lonely(Ranges{{size - 4 * mib, 4 * mib}}, size, 3 * mib, 4).empty());  // nothing is behind the end
  CHECK(lonely(Ranges{{0, 8 * mib}}, size, 3 * mib, 4).empty());
  CHECK(lonely(Ranges{{0, 8 * mib - 4096}}, size, 3 * mib, 4).size() == 1);
  CHECK(lonely(Ranges{{size - 2 * mib, mib}, {size - mib - 4096, mib + 4096}}, size, 4096, 4).empty());
}

TEST_CASE("parts that lie alone are warmed, whatever the kernel takes of a request at once") {
  const TestFile file;
  for (const auto mechanism : {Mechanism::populate, Mechanism::read}) {
    const auto mapping = Mapping::open(file.path);
    (void)evict(mapping);
    const std::vector<ByteRange> parts{{100, 5}, {9 * mib, 64 * 1024}, {20 * mib, mib}, {file_size - 10, 10}};
    WarmOptions options;
    options.mechanism = mechanism;
    const auto report = warm(mapping, parts, options);
    CHECK(report.complete);
    CHECK(report.reason.find("without what lies around") != std::string::npos);
    options.huge = Huge::yes;
    CHECK(warm(mapping, parts, options).reason.find("without what lies around") == std::string::npos);
  }
}

TEST_CASE("the plan follows what was measured, and says why") {
  Conditions conditions;
  conditions.file_size = 4096 * mib;
  conditions.missing = 4096 * mib;
  conditions.available = 20'000 * mib;
  conditions.read_ahead = 128 * 1024;
  CHECK(choose(conditions, {}).mechanism == Mechanism::populate);
  CHECK(choose(conditions, {}).huge);
  CHECK(choose(conditions, {}).overshoot == 4 * mib);
  CHECK(choose(conditions, {}).at_once == 128 * 1024);

  SUBCASE("small pages are read ahead as far as the device does, and what is asked for stays as asked") {
    WarmOptions small;
    small.huge = Huge::no;
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
    WarmOptions forced;
    forced.huge = Huge::yes;
    CHECK(choose(conditions, forced).huge);
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
    WarmOptions in_order;
    in_order.in_order = true;
    CHECK(choose(conditions, in_order).mechanism == Mechanism::advise);
    in_order.huge = Huge::no;
    CHECK(choose(conditions, in_order).mechanism == Mechanism::none);
    conditions.read_ahead = 128 * 1024;
    CHECK(choose(conditions, in_order).mechanism == Mechanism::populate);
  }
  SUBCASE("nothing missing, nothing done") {
    conditions.missing = 0;
    CHECK(choose(conditions, {}).mechanism == Mechanism::none);
  }
}

}  // namespace onecopy
