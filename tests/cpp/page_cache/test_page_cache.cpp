#include <sys/wait.h>
#include <unistd.h>

#include "back_end.hpp"
#include "completed.hpp"
#include "onecopy/base/error.hpp"
#include "onecopy/files/atomic_writer.hpp"
#include "onecopy/page_cache/page_cache.hpp"
#include "onecopy/page_cache/warm.hpp"
#include "os/os.hpp"
#include "page_cache/ranges.hpp"
#include "page_cache/warm_plan.hpp"
#include "precompiled.hpp"
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

using testing::completed;
using testing::nearly;

// What the kernel has taken back of a file since it was read: on a busy machine it does so within milliseconds.
std::uint64_t reclaimed(const Mapping& mapping) {
  return os::cached_in_file(mapping.descriptor(), {0, mapping.identity().size}).value.evicted;
}

}  // namespace

TEST_CASE_FIXTURE(TestFile, "a cold file is warmed, and a warm one is left alone") {
  const auto mapping = Mapping::open(path);
  const auto gone = evict(mapping);
  if (gone.cached_after) REQUIRE(*gone.cached_after == 0);
  const auto report = warm(mapping);
  CHECK(completed(report));
  CHECK(report.bytes == file_size);
  CHECK(report.filled == file_size);
  CHECK(report.seconds > 0);
  CHECK(report.gib_per_s > 0);
  CHECK(report.threads >= 1);
  CHECK(!report.reason.empty());
  if (report.cached_after) CHECK(*report.cached_after + reclaimed(mapping) >= nearly(file_size));
  CHECK(testing::same_bytes(mapping.bytes(), content));
  const auto again = warm(mapping);
  CHECK(completed(again));
  if (again.cached_before == file_size && reclaimed(mapping) == 0) {
    CHECK(again.mechanism == Mechanism::none);
    CHECK(again.filled == 0);
    CHECK(again.reason == "already in memory");
  }
}

TEST_CASE_FIXTURE(TestFile, "every mechanism fills the file, and says which it was") {
  for (const Mechanism mechanism : {Mechanism::populate, Mechanism::read}) {
    for (const unsigned threads : {1U, 3U}) {
      const auto mapping = Mapping::open(path);
      (void)evict(mapping);
      WarmOptions options;
      options.mechanism = mechanism;
      options.threads = threads;
      const auto report = warm(mapping, everything, options);
      CHECK(completed(report));
      CHECK(report.threads <= threads);
      CHECK(report.threads >= std::min(threads, 2U));  // 48 MiB are two pieces; more where the disk answers late
      if (residency(mapping).source == Source::cachestat) {
        CHECK(report.mechanism == mechanism);
        CHECK(*report.cached_after + reclaimed(mapping) >= nearly(file_size));
      }
    }
  }
}

TEST_CASE_FIXTURE(TestFile, "a range is rounded outwards, and the rest of the file stays cold") {
  const auto mapping = Mapping::open(path);
  if (!evict(mapping).cached_after) SKIP_CASE("cached pages are not counted");
  WarmOptions options;
  options.huge = Huge::no;
  options.mechanism = Mechanism::populate;
  const ByteRange part{20 * mib + 5, 10};
  const auto report = warm(mapping, std::array{part}, options);
  CHECK(report.bytes == os::page_size());
  CHECK(*report.cached_after == os::page_size());
  CHECK(*residency(mapping).cached < file_size);
  CHECK(*residency(mapping, std::array{part}).cached == os::page_size());
}

TEST_CASE_FIXTURE(TestFile, "an empty list of ranges is no bytes, for every call") {
  const auto mapping = std::make_shared<const Mapping>(Mapping::open(path));
  const std::vector<ByteRange> none;
  CHECK(residency(*mapping, none).bytes == 0);
  CHECK(evict(*mapping, none).bytes == 0);
  CHECK(collapse(*mapping, none).bytes == 0);
  CHECK(pin(*mapping, none).bytes == 0);
  const auto report = warm(*mapping, none);
  CHECK(report.bytes == 0);
  CHECK(completed(report));
  CHECK(WarmJob::start(mapping, none).wait().bytes == 0);
  CHECK(WarmJob::start({{mapping, none, nullptr}, {mapping, everything, nullptr}}).wait().bytes == file_size);
}

TEST_CASE_FIXTURE(TestFile, "a mapping of part of a file warms that part") {
  MappingOptions options;
  options.offset = 7 * mib + 77;
  options.length = 9 * mib;
  const auto mapping = Mapping::open(path, options);
  (void)evict(Mapping::open(path));
  const auto report = warm(mapping);
  CHECK(completed(report));
  CHECK(report.bytes == 9 * mib);
  CHECK(testing::same_bytes(mapping.bytes(), Bytes(content).subspan(7 * mib + 77, 9 * mib)));
}

TEST_CASE_FIXTURE(TestFile, "a budget ends the work early, and the report says so") {
  const auto mapping = Mapping::open(path);
  if (!evict(mapping).cached_after) SKIP_CASE("cached pages are not counted");
  WarmOptions options;
  options.budget = 17 * mib;
  const auto report = warm(mapping, everything, options);
  CHECK(!report.complete);
  CHECK(report.filled <= 17 * mib);
  CHECK(report.filled > 0);
  CHECK(report.reason.find("budget of 17.0 MiB") != std::string::npos);
}

TEST_CASE_FIXTURE(TestFile, "with random access expected, a touch reads its page and not what lies around it") {
  const auto mapping = Mapping::open(path);
  const auto outcome = advise_random(mapping);
  const auto gone = evict(mapping);
  CHECK(mapping.bytes()[20 * mib] == content[20 * mib]);
  const auto cached = residency(mapping).cached;
  if (outcome == Outcome::applied && cached && gone.cached_after == 0) CHECK(*cached <= mib / 16);
  MappingOptions copied;
  copied.mode = Mode::copy;
  CHECK(advise_random(Mapping::open(path, copied)) == Outcome::unsupported);
}

TEST_CASE("a file truncated under its mapping is an error, not a signal") {
  for (const Mechanism mechanism : {Mechanism::populate, Mechanism::read}) {
    const TestFile file;
    const auto mapping = Mapping::open(file.path);
    (void)evict(mapping);
    std::filesystem::resize_file(file.path, 10 * mib);
    WarmOptions options;
    options.mechanism = mechanism;
    CHECK_THROWS_AS(warm(mapping, everything, options), DataLost);
    CHECK_THROWS_AS(residency(mapping), DataLost);
    CHECK_THROWS_AS(evict(mapping), DataLost);
    CHECK_THROWS_AS(pin(mapping), DataLost);
    CHECK(residency(mapping, std::array{ByteRange{0, 9 * mib}}).bytes == 9 * mib);  // what is left can be asked about
    CHECK(completed(warm(mapping, std::array{ByteRange{0, 9 * mib}}, options)));
  }
}

TEST_CASE_FIXTURE(TestFile, "a job runs beside other work, owns the mapping, and can be waited for by many") {
  auto mapping = std::make_shared<const Mapping>(Mapping::open(path));
  (void)evict(*mapping);
  const std::weak_ptr<const Mapping> observer = mapping;
  {
    const auto job = WarmJob::start(std::move(mapping));
    std::jthread other([&] { CHECK(completed(job.wait())); });
    CHECK(completed(job.wait()));
    CHECK(job.done());
    CHECK(job.progress().done == job.progress().total);
    CHECK(!observer.expired());
  }
  CHECK(observer.expired());
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

TEST_CASE_FIXTURE(TestFile, "a job that is dropped or cancelled stops, and reports what it did") {
  const auto mapping = std::make_shared<const Mapping>(Mapping::open(path));
  for (int round = 0; round < 20; ++round) {
    (void)evict(*mapping);
    auto job = WarmJob::start(mapping);
    if (round % 2 == 0) continue;                                      // dropped
    if (round % 4 == 1 && !job.done()) job = WarmJob::start(mapping);  // the other one is dropped
    job.cancel();
    const auto report = job.wait();
    CHECK((report.complete || report.reason.ends_with("cancelled")));
  }
}

TEST_CASE_FIXTURE(TestFile, "a job carries the error of its work") {
  const auto mapping = std::make_shared<const Mapping>(Mapping::open(path));
  (void)evict(*mapping);
  std::filesystem::resize_file(path, 4096);
  CHECK_THROWS_AS((void)WarmJob::start(mapping).wait(), DataLost);
}

#if defined(__SANITIZE_THREAD__)
constexpr bool threads_after_fork = false;  // the thread sanitizer dies of them
#else
constexpr bool threads_after_fork = true;
#endif

TEST_CASE_FIXTURE(TestFile, "a forked child neither waits for its parent's job nor hangs on dropping it") {
  const auto mapping = std::make_shared<const Mapping>(Mapping::open(path));
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
    CHECK(completed(job.wait()));
  }
}

TEST_CASE_FIXTURE(TestFile, "private pages survive eviction with the caller's changes") {
  MappingOptions options;
  options.private_pages = true;
  auto mapping = Mapping::open(path, options);
  mapping.private_bytes()[5 * mib] = std::byte{0x77};
  (void)evict(mapping);
  CHECK(mapping.bytes()[5 * mib] == std::byte{0x77});
}

TEST_CASE_FIXTURE(TestFile, "a private copy has nothing to warm, and says so") {
  MappingOptions options;
  options.mode = Mode::copy;
  const auto mapping = Mapping::open(path, options);
  const auto report = warm(mapping);
  CHECK(report.mechanism == Mechanism::none);
  CHECK(report.reason == "a private copy is in memory already");
}

TEST_CASE_FIXTURE(TestFile, "pinning locks what the limit allows, and reports the rest") {
  const auto mapping = Mapping::open(path);
  const std::uint64_t pages = 2 * os::page_size();
  const auto small = pin(mapping, std::array{ByteRange{0, pages}});
  CHECK(small.bytes == pages);
  CHECK((small.pinned == pages || small.outcome != Outcome::applied));
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  const bool really = false;  // sanitizers make mlock do nothing
#else
  const bool really = small.pinned == pages;
#endif
  if (really) {
    (void)evict(mapping);
    if (const auto cached = residency(mapping, std::array{ByteRange{0, pages}}).cached) CHECK(*cached == pages);
  }
  unpin(mapping);
}

TEST_CASE_FIXTURE(TestFile, "parts that lie alone are warmed, whatever the kernel takes of a request at once") {
  for (const auto mechanism : {Mechanism::populate, Mechanism::read}) {
    const auto mapping = Mapping::open(path);
    (void)evict(mapping);
    const std::vector<ByteRange> parts{{100, 5}, {9 * mib, 64 * 1024}, {20 * mib, mib}, {file_size - 10, 10}};
    WarmOptions options;
    options.mechanism = mechanism;
    const auto report = warm(mapping, parts, options);
    CHECK(completed(report));
    CHECK(report.reason.find("without surrounding pages") != std::string::npos);
    options.huge = Huge::yes;
    CHECK(warm(mapping, parts, options).reason.find("without surrounding pages") == std::string::npos);
  }
}

}  // namespace onecopy
