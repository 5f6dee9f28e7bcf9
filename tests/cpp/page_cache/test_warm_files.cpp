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

// Cold files of random sizes around 2 MiB, with the mappings of them.
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
      (void)evict(*mappings.back());
      bytes += content.size();
    }
  }

  std::vector<WarmPart> parts() const {
    std::vector<WarmPart> parts;
    for (const auto& mapping : mappings) parts.push_back({mapping, {}, nullptr});
    return parts;
  }
};

// Counts the bytes that it gets, and can hold every thread until so many are inside.
class Recorder : public Inspector {
 public:
  explicit Recorder(std::uint64_t good) : good_(good) {}
  bool inspect(ByteRange range) noexcept override {
    seen_.fetch_add(range.length);
    return true;
  }
  std::uint64_t finish() override {
    if (seen_.load() > good_) throw FormatError(FormatError::malformed, "damaged");
    return seen_.load();
  }

 private:
  std::atomic<std::uint64_t> seen_{0};
  std::uint64_t good_;
};

// Ends only when two files are in it at once.
class Meeting : public Inspector {
 public:
  explicit Meeting(std::atomic<int>& inside) : inside_(inside) {}
  bool inspect(ByteRange /*range*/) noexcept override {
    if (!entered_.exchange(true)) inside_.fetch_add(1);
    while (inside_.load() < 2) std::this_thread::yield();
    return true;
  }
  std::uint64_t finish() override { return 0; }

 private:
  std::atomic<int>& inside_;
  std::atomic<bool> entered_{false};
};

}  // namespace

TEST_CASE("a job over several files fills all of them, and reports on all as one") {
  const Files files(9);
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
  std::atomic<int> inside{0};
  auto parts = files.parts();
  for (auto& part : parts) part.inspector = std::make_shared<Meeting>(inside);
  CHECK(testing::completed(WarmJob::start(std::move(parts)).wait()));
}

TEST_CASE("a file of a job that was truncated ends it before another is read, and its path is in the error") {
  const Files files(5);
  const bool cold = residency(*files.mappings[0]).cached == 0;
  std::filesystem::resize_file(files.paths[4], 4096);
  try {
    (void)WarmJob::start(files.parts()).wait();
    FAIL("the truncated file was warmed");
  } catch (const DataLost& lost) {
    CHECK(lost.path() == files.paths[4].string());
  }
  if (cold) CHECK(residency(*files.mappings[0]).cached == 0);
}

TEST_CASE("a file of a job that is truncated while the job runs ends it with an error of that file") {
  for (const Mechanism mechanism : {Mechanism::populate, Mechanism::read}) {
    const Files files(3);
    // The first file's inspector truncates the last file, which one thread reads later.
    class Truncating : public Inspector {
     public:
      explicit Truncating(std::filesystem::path path) : path_(std::move(path)) {}
      bool inspect(ByteRange /*range*/) noexcept override {
        std::filesystem::resize_file(path_, 4096);
        return true;
      }
      std::uint64_t finish() override { return 0; }

     private:
      std::filesystem::path path_;
    };
    WarmOptions options;
    options.threads = 1;
    options.mechanism = mechanism;
    auto parts = files.parts();
    parts[0].inspector = std::make_shared<Truncating>(files.paths[2]);
    try {
      (void)WarmJob::start(std::move(parts), options).wait();
      FAIL("the truncated file was warmed");
    } catch (const DataLost& lost) {
      CHECK(lost.path() == files.paths[2].string());
    }
  }
}

TEST_CASE("pages that are dropped before a warming ends are reported as missing") {
  for (const Mechanism mechanism : {Mechanism::populate, Mechanism::read}) {
    const Files files(2);
    // The second file's inspector does to the first file what a kernel does that searches for unused pages.
    class Dropping : public Inspector {
     public:
      explicit Dropping(std::shared_ptr<const Mapping> mapping) : mapping_(std::move(mapping)) {}
      bool inspect(ByteRange /*range*/) noexcept override {
        (void)evict(*mapping_);
        return true;
      }
      std::uint64_t finish() override { return 0; }

     private:
      std::shared_ptr<const Mapping> mapping_;
    };
    WarmOptions options;
    options.threads = 1;
    options.mechanism = mechanism;
    auto parts = files.parts();
    parts[1].inspector = std::make_shared<Dropping>(files.mappings[0]);
    const auto report = WarmJob::start(std::move(parts), options).wait();
    const bool known = report.cached_after && *report.cached_after < report.bytes;
    CHECK(report.complete == !known);
    CHECK((report.reason.find("were dropped again before the end") != std::string::npos) == known);
    if (residency(*files.mappings[0]).cached == 0) CHECK(known);
  }
}

TEST_CASE("a file that is replaced while a job runs is warmed as it was opened") {
  const Files files(3);
  const auto replacement = files.folder.write("new", testing::random_bytes(100));
  std::filesystem::rename(replacement, files.paths[1]);
  const auto report = WarmJob::start(files.parts()).wait();
  CHECK(testing::completed(report));
  CHECK(report.bytes == files.bytes);
}

TEST_CASE("each file of a job has its own inspector, and the first in order that found damage is the error") {
  const Files files(4);
  auto parts = files.parts();
  for (std::size_t i = 0; i < parts.size(); ++i) parts[i].inspector = std::make_shared<Recorder>(UINT64_MAX);
  const auto report = WarmJob::start(parts).wait();
  CHECK(report.verified == files.bytes);
  for (std::size_t i = 0; i < parts.size(); ++i)
    parts[i].inspector = std::make_shared<Recorder>(i == 2 ? 0 : UINT64_MAX);
  CHECK_THROWS_AS((void)WarmJob::start(parts).wait(), FormatError);
}

TEST_CASE("a job over several files that is dropped or cancelled stops, and reports what it did") {
  const Files files(8);
  for (int round = 0; round < 20; ++round) {
    for (const auto& mapping : files.mappings) (void)evict(*mapping);
    auto job = WarmJob::start(files.parts());
    if (round % 2 == 0) continue;  // dropped
    job.cancel();
    const auto report = job.wait();
    CHECK((report.complete || report.reason.ends_with("cancelled")));
    CHECK(report.filled <= report.bytes);
  }
}

}  // namespace onecopy
