// One mapping: warming and evicting it, in this thread and beside it. How its pages are counted, ranges, budgets, pins
// and forks are in tests/python/page_cache and tests/processes/page_cache.
#include <sys/mman.h>

#include "back_end.hpp"
#include "completed.hpp"
#include "memory_files.hpp"
#include "onecopy/base/error.hpp"
#include "onecopy/files/atomic_writer.hpp"
#include "onecopy/page_cache/page_cache.hpp"
#include "onecopy/page_cache/warm.hpp"
#include "os/os.hpp"
#include "precompiled.hpp"
#include "scratch_folder.hpp"

namespace onecopy {
namespace {

using testing::completed;
using testing::nearly;

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

// What the kernel has taken back of a file since it was read: on a busy machine it does so within milliseconds.
std::uint64_t reclaimed(const Mapping& mapping) {
  return os::cached_in_file(mapping.descriptor(), {0, mapping.identity().size}).value.evicted;
}

// Whether the kernel knows MADV_COLLAPSE, which is asked for no memory.
bool kernel_collapses() {
  constexpr int madv_collapse = 25;
  auto* page = ::mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE | MAP_ANON, -1, 0);
  const bool known = ::madvise(page, 0, madv_collapse) == 0;
  ::munmap(page, 4096);
  return known && testing::on_linux;
}

}  // namespace

TEST_CASE_FIXTURE(TestFile, "every mechanism fills the file, and says which it was, and a warm file is left alone") {
  for (const Mechanism mechanism : {Mechanism::populate, Mechanism::read}) {
    for (const unsigned threads : {1U, 3U}) {
      const auto mapping = Mapping::open(path);
      if (const auto left = evict(mapping).cached_after) REQUIRE(*left == 0);
      const auto report = warm(mapping, everything, {.threads = threads, .mechanism = mechanism});
      CHECK(completed(report));
      CHECK(report.bytes == file_size);
      CHECK(report.filled == file_size);
      CHECK(report.threads <= threads);
      CHECK(report.threads >= std::min(threads, 2U));  // 48 MiB are two pieces; more where the disk answers late
      CHECK(report.gib_per_s > 0);
      CHECK(testing::same_bytes(mapping.bytes(), content));
      if (residency(mapping).source == Source::cachestat) {
        CHECK(report.mechanism == mechanism);
        CHECK(*report.cached_after + reclaimed(mapping) >= nearly(file_size));
      }
      const auto again = warm(mapping);
      CHECK(completed(again));
      if (again.cached_before != file_size || reclaimed(mapping) != 0) continue;
      CHECK(again.mechanism == Mechanism::none);
      CHECK(again.filled == 0);
    }
  }
}

TEST_CASE_FIXTURE(TestFile, "calls on no ranges, on private pages and on a copy do what can be done, on every system") {
  const std::vector<ByteRange> none;
  const std::array two_pages{ByteRange{0, 2 * os::page_size()}};
  const auto mapping = std::make_shared<const Mapping>(Mapping::open(path));
  const auto pinned = pin(*mapping, two_pages);
  CHECK(pinned.bytes == 2 * os::page_size());
  CHECK((pinned.pinned == pinned.bytes || pinned.outcome != Outcome::applied));
  unpin(*mapping);
  for (const auto bytes :
       {residency(*mapping, none).bytes, evict(*mapping, none).bytes, collapse(*mapping, none).bytes,
        pin(*mapping, none).bytes, warm(*mapping, none).bytes, WarmJob::start(mapping, none).wait().bytes})
    CHECK(bytes == 0);
  CHECK(WarmJob::start({{mapping, none, nullptr}, {mapping, everything, nullptr}}).wait().bytes == file_size);

  auto writable = Mapping::open(path, {.private_pages = true});
  writable.private_bytes()[5 * mib] = std::byte{0x77};
  (void)evict(writable);
  CHECK(writable.bytes()[5 * mib] == std::byte{0x77});

  const auto copy = Mapping::open(path, {.mode = Mode::copy});
  CHECK(warm(copy).mechanism == Mechanism::none);
  CHECK(advise_random(copy) == Outcome::unsupported);
}

TEST_CASE_FIXTURE(TestFile, "with random access expected, a touch reads its page and not what lies around it") {
  const auto mapping = Mapping::open(path, {.offset = 77, .length = 40 * mib});
  const auto outcome = advise_random(mapping);
  const auto gone = evict(Mapping::open(path));
  CHECK(mapping.bytes()[0] == content[77]);
  const auto cached = residency(mapping).cached;
  if (outcome == Outcome::applied && cached && gone.cached_after == 0) {
    CHECK(*cached <= mib / 16);
    CHECK((*cached + 77) % os::page_size() == 0);  // of the first page, what is inside the mapping
  }
}

TEST_CASE("a file truncated under its mapping is an error, not a signal") {
  for (const Mechanism mechanism : {Mechanism::populate, Mechanism::read}) {
    const TestFile file;
    const auto mapping = std::make_shared<const Mapping>(Mapping::open(file.path));
    (void)evict(*mapping);
    std::filesystem::resize_file(file.path, 10 * mib);
    const WarmOptions options{.mechanism = mechanism};
    CHECK_THROWS_AS(warm(*mapping, everything, options), DataLost);
    CHECK_THROWS_AS((void)WarmJob::start(mapping, everything, options).wait(), DataLost);
    CHECK_THROWS_AS(residency(*mapping), DataLost);
    CHECK_THROWS_AS(evict(*mapping), DataLost);
    CHECK_THROWS_AS(pin(*mapping), DataLost);
    CHECK(residency(*mapping, std::array{ByteRange{0, 9 * mib}}).bytes == 9 * mib);  // what is left can be asked about
    CHECK(completed(warm(*mapping, std::array{ByteRange{0, 9 * mib}}, options)));
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
  const Residency known{.bytes = 8, .cached = 4, .source = Source::cachestat};
  const Residency unknown{.bytes = 8, .source = Source::unknown};
  CHECK(total(std::array{known, known}).cached == 8);
  CHECK(total(std::array{known, known}).source == Source::cachestat);
  CHECK(total(std::array{known, unknown}).bytes == 16);
  CHECK(!total(std::array{known, unknown}).cached);
  CHECK(total(std::array{known, unknown}).source == Source::unknown);

  const PinReport locked{.bytes = 4096, .pinned = 4096, .outcome = Outcome::applied, .reason = "locked"};
  const PinReport refused{.bytes = 4096, .outcome = Outcome::refused, .reason = "over the limit"};
  const auto pins = total(std::array{locked, refused, locked});
  CHECK(pins.pinned == 8192);
  CHECK(pins.outcome == Outcome::refused);
  CHECK(pins.reason == "locked; over the limit; 3 files");

  WarmReport warmed{.bytes = 100, .huge_share = 1, .complete = true};
  warmed.piece = 7;
  warmed.latency = 0.5;
  const WarmReport cold{.bytes = 300, .huge_share = 0};
  const auto sum = total(std::array{warmed, cold, WarmReport{}});
  CHECK(sum.huge_share == doctest::Approx(0.25));
  CHECK(std::pair(sum.piece, sum.latency) == std::pair(warmed.piece, warmed.latency));
  CHECK(!sum.complete);
  CHECK(!sum.verified);
}

TEST_CASE("only whole 2 MiB of a file are collapsed, for all who map it, or the report says why not") {
  const auto content = testing::random_bytes(9 * mib + 1234);
  const auto mapping = testing::memory_file(content);
  const auto report = collapse(mapping);
  MESSAGE("collapse: " << to_string(report.outcome) << ", " << report.reason);
  CHECK(report.bytes == 8 * mib);
  CHECK(!report.reason.empty());
  CHECK(testing::same_bytes(mapping.bytes(), content));
  if (report.outcome == Outcome::applied) {
    CHECK(kernel_collapses());
    if (report.huge) CHECK(*report.huge == 8 * mib);
    const auto other = Mapping::from_descriptor(mapping.descriptor(), "another look");
    CHECK(testing::same_bytes(other.bytes(), content));
    if (const auto huge = residency(other).huge) CHECK(*huge == 8 * mib);
  }
  const auto bytes_of = [&](ByteRange range) { return collapse(mapping, std::array{range}).bytes; };
  CHECK(bytes_of({0, 2 * mib}) == 2 * mib);
  CHECK(bytes_of({1 * mib, 5 * mib}) == 4 * mib);
  CHECK(bytes_of({8 * mib, 2 * mib}) == 0);
  const auto part = [&](std::uint64_t length) {
    return collapse(Mapping::from_descriptor(mapping.descriptor(), "a part", {.offset = 1 * mib, .length = length}));
  };
  CHECK(part(3 * mib).bytes == 2 * mib);
  CHECK(part(2 * mib).outcome == Outcome::refused);
}

TEST_CASE_FIXTURE(TestFile, "a file on a disk and a private copy can be collapsed as well, and keep their bytes") {
  for (const Mode mode : {Mode::map, Mode::copy}) {
    const auto mapping = Mapping::open(path, {.mode = mode});
    CHECK(!collapse(mapping).reason.empty());
    CHECK(testing::same_bytes(mapping.bytes(), content));
  }
}

}  // namespace onecopy
