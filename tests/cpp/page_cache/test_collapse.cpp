#include <doctest/doctest.h>
#include <sys/mman.h>

#include "back_end.hpp"
#include "onecopy/files/memory_file_writer.hpp"
#include "onecopy/page_cache/page_cache.hpp"
#include "os/os.hpp"
#include "scratch_folder.hpp"
#include "writers.hpp"

namespace onecopy {
namespace {

constexpr std::uint64_t mib = std::uint64_t{1} << 20U;
constexpr std::uint64_t size = 9 * mib + 1234;

using testing::memory_file;

// The word itself, of no memory: EINVAL where the kernel does not know it.
bool kernel_collapses() {
#ifdef __linux__
  if (!testing::on_linux) return false;
  constexpr int madv_collapse = 25;
  auto* page = ::mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE | MAP_ANON, -1, 0);
  const bool known = ::madvise(page, 0, madv_collapse) == 0;
  ::munmap(page, 4096);
  return known;
#else
  return false;
#endif
}

}  // namespace

TEST_CASE("a memory file is collapsed into 2 MiB pages for all who map it, or the report says why not") {
  const auto content = testing::random_bytes(size);
  const auto mapping = memory_file(content);
  const auto report = collapse(mapping);
  MESSAGE("collapse: " << to_string(report.outcome) << ", " << report.reason);
  CHECK(report.bytes == 8 * mib);
  CHECK(!report.reason.empty());
  CHECK(testing::same_bytes(mapping.bytes(), content));
  if (!kernel_collapses()) CHECK(report.outcome != Outcome::applied);
  if (report.outcome == Outcome::applied) {
    if (report.huge) CHECK(*report.huge == 8 * mib);
    const auto other = Mapping::from_descriptor(mapping.descriptor(), "another look");
    CHECK(testing::same_bytes(other.bytes(), content));
    if (const auto huge = residency(other).huge) CHECK(*huge == 8 * mib);
  }
}

TEST_CASE("only whole 2 MiB of the file are collapsed") {
  const auto content = testing::random_bytes(size);
  const auto mapping = memory_file(content);
  const auto bytes_of = [&](ByteRange range) { return collapse(mapping, std::span(&range, 1)).bytes; };
  CHECK(bytes_of({0, 2 * mib}) == 2 * mib);
  CHECK(bytes_of({1 * mib, 5 * mib}) == 4 * mib);
  CHECK(bytes_of({8 * mib, 2 * mib}) == 0);
  MappingOptions options;
  options.offset = 1 * mib;
  options.length = 3 * mib;
  const auto part = Mapping::from_descriptor(mapping.descriptor(), "a part", options);
  CHECK(collapse(part).bytes == 2 * mib);
  options.length = 2 * mib;
  const auto none = collapse(Mapping::from_descriptor(mapping.descriptor(), "less", options));
  CHECK(none.outcome == Outcome::refused);
  CHECK(none.reason == "it contains no complete 2 MiB page");
}

TEST_CASE_FIXTURE(InFolder, "a file on a disk and a private copy can be asked as well, and keep their bytes") {
  const auto content = testing::random_bytes(size);
  const auto path = folder.write("data", content);
  for (const Mode mode : {Mode::map, Mode::copy}) {
    MappingOptions options;
    options.mode = mode;
    const auto mapping = Mapping::open(path, options);
    CHECK(!collapse(mapping).reason.empty());
    CHECK(testing::same_bytes(mapping.bytes(), content));
  }
}

}  // namespace onecopy
