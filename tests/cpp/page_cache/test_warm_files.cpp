// One warming of several files.
#include "back_end.hpp"
#include "completed.hpp"
#include "onecopy/base/error.hpp"
#include "onecopy/files/atomic_writer.hpp"
#include "onecopy/page_cache/page_cache.hpp"
#include "onecopy/page_cache/warm.hpp"
#include "os/os.hpp"
#include "precompiled.hpp"
#include "scratch_folder.hpp"

namespace onecopy {
namespace {

constexpr std::uint64_t mib = std::uint64_t{1} << 20U;

// Cold files of different sizes around 2 MiB, with the mappings of them.
struct Files {
  testing::ScratchFolder folder;
  std::vector<std::filesystem::path> paths;
  std::vector<std::shared_ptr<const Mapping>> mappings;
  std::uint64_t bytes = 0;

  explicit Files(std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      paths.push_back(folder / ("file" + std::to_string(i)));
      const auto content = testing::random_bytes(mib + i * 77'777);
      AtomicWriter writer(paths.back(), content.size());
      writer.write(content);
      writer.commit();
      mappings.push_back(std::make_shared<const Mapping>(Mapping::open(paths.back())));
      bytes += content.size();
    }
    evict_all();
  }

  void evict_all() const {
    for (const auto& mapping : mappings) (void)evict(*mapping);
  }

  std::vector<WarmPart> parts() const {
    std::vector<WarmPart> parts;
    for (const auto& mapping : mappings) parts.push_back({mapping, {}, nullptr});
    return parts;
  }
};

// Calls a function for each range, and counts its bytes.
class Calling : public Inspector {
 public:
  explicit Calling(std::function<void()> call) : call_(std::move(call)) {}
  bool inspect(ByteRange range) noexcept override {
    call_();
    seen_ += range.length;
    return true;
  }
  std::uint64_t finish() override { return seen_; }

 private:
  std::function<void()> call_;
  std::atomic<std::uint64_t> seen_{0};
};

std::shared_ptr<Inspector> calling(std::function<void()> call) { return std::make_shared<Calling>(std::move(call)); }

class Refusing : public Calling {
 public:
  Refusing() : Calling([] {}) {}
  std::uint64_t finish() override { throw FormatError(FormatError::malformed, "damaged"); }
};

// The path of the file whose bytes were lost.
std::string lost_in(const std::vector<WarmPart>& parts, const WarmOptions& options = {}) {
  try {
    (void)WarmJob::start(parts, options).wait();
  } catch (const DataLost& lost) {
    return lost.path();
  }
  return "none";
}

}  // namespace

TEST_CASE("a job over several files fills all of them as they were opened, and reports on all as one") {
  const Files files(9);
  std::filesystem::rename(files.folder.write("new", testing::random_bytes(100)), files.paths[1]);
  auto parts = files.parts();
  parts[3].ranges = {{0, 4096}};
  const auto job = WarmJob::start(parts);
  const auto report = job.wait();
  const std::uint64_t expected = files.bytes - files.mappings[3]->bytes().size() + os::page_size();
  CHECK(testing::completed(report));
  CHECK(report.bytes == expected);
  CHECK(report.threads > 1);
  CHECK(report.seconds > 0);
  CHECK(report.reason.find("9 files") != std::string::npos);
  CHECK(job.progress().done == expected);
  CHECK(job.progress().total == expected);
  if (report.cached_before == 0) CHECK(report.filled == expected);
  CHECK(WarmJob::start(std::vector<WarmPart>{}).wait().complete);
}

TEST_CASE("two files of a job are read at the same time") {
  const Files files(2);
  auto parts = files.parts();
  std::array<std::atomic<bool>, 2> inside{};
  for (std::size_t i = 0; i < 2; ++i)
    parts[i].inspector = calling([&inside, i] {
      inside.at(i) = true;
      while (!inside.at(1 - i)) std::this_thread::yield();
    });
  CHECK(testing::completed(WarmJob::start(std::move(parts)).wait()));
}

TEST_CASE("a file of a job that was truncated ends it before another is read, and its path is in the error") {
  const Files files(5);
  const bool cold = residency(*files.mappings[0]).cached == 0;
  std::filesystem::resize_file(files.paths[4], 4096);
  CHECK(lost_in(files.parts()) == files.paths[4].string());
  if (cold) CHECK(residency(*files.mappings[0]).cached == 0);
}

TEST_CASE("a file of a job that is truncated while the job runs ends it with an error of that file") {
  for (const Mechanism mechanism : {Mechanism::populate, Mechanism::read}) {
    const Files files(3);
    auto parts = files.parts();
    parts[0].inspector = calling([&] { std::filesystem::resize_file(files.paths[2], 4096); });  // which is read later
    CHECK(lost_in(parts, {.threads = 1, .mechanism = mechanism}) == files.paths[2].string());
  }
}

TEST_CASE("pages that are dropped before a warming ends are reported as missing") {
  for (const Mechanism mechanism : {Mechanism::populate, Mechanism::read}) {
    const Files files(2);
    auto parts = files.parts();
    parts[1].inspector = calling([&] { (void)evict(*files.mappings[0]); });  // as a kernel that searches unused pages
    const auto report = WarmJob::start(std::move(parts), {.threads = 1, .mechanism = mechanism}).wait();
    const bool known = report.cached_after && *report.cached_after < report.bytes;
    CHECK(report.complete == !known);
    CHECK((report.reason.find("were dropped again before the end") != std::string::npos) == known);
    if (residency(*files.mappings[0]).cached == 0) CHECK(known);
  }
}

TEST_CASE("each file of a job has its own inspector, and one that found damage is the error") {
  const Files files(4);
  auto parts = files.parts();
  for (auto& part : parts) part.inspector = calling([] {});
  CHECK(WarmJob::start(parts).wait().verified == files.bytes);
  parts[2].inspector = std::make_shared<Refusing>();
  CHECK_THROWS_AS((void)WarmJob::start(parts).wait(), FormatError);
}

TEST_CASE("a job that is dropped, replaced or cancelled stops, and reports what it did") {
  const Files files(8);
  for (int round = 0; round < 20; ++round) {
    files.evict_all();
    auto job = WarmJob::start(files.parts());
    if (round % 2 == 0) continue;                                            // dropped
    if (round % 4 == 1 && !job.done()) job = WarmJob::start(files.parts());  // the other one is dropped
    job.cancel();
    const auto report = job.wait();
    CHECK((report.complete || report.reason.ends_with("cancelled")));
    CHECK(report.filled <= report.bytes);
  }
}

}  // namespace onecopy
