#include <doctest/doctest.h>

#include <array>

#include "onecopy/files/atomic_writer.hpp"
#include "onecopy/page_cache/page_cache.hpp"
#include "onecopy/page_cache/warm.hpp"
#include "os/os.hpp"
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

// Kernels that search for idle pages (DAMON) evict some within milliseconds, and without cachestat they are not
// counted.
constexpr std::uint64_t nearly(std::uint64_t bytes) { return bytes - bytes / 8; }

// What the kernel has taken back of a file since it was read: on a busy machine it does so within milliseconds.
std::uint64_t reclaimed(const Mapping& mapping) {
  return os::cached_in_file(mapping.descriptor(), {0, mapping.identity().size}).value.evicted;
}

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
  if (report.cached_after) CHECK(*report.cached_after + reclaimed(mapping) >= nearly(file_size));
  CHECK(testing::same_bytes(mapping.bytes(), file.content));
  const auto again = warm(mapping);
  CHECK(again.complete);
  if (again.cached_before == file_size && reclaimed(mapping) == 0) {
    CHECK(again.mechanism == Mechanism::none);
    CHECK(again.filled == 0);
    CHECK(again.reason == "already in memory");
  }
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

}  // namespace onecopy
