// What control groups of both versions leave, computed from trees of files made here.
#include "files/available_memory.hpp"

#include "precompiled.hpp"
#include "scratch_folder.hpp"

namespace onecopy {
namespace {

constexpr std::uint64_t mib = 1U << 20U;

// A tree of /proc and /sys with 1000 MiB available on the machine.
struct Tree {
  testing::ScratchFolder folder;

  explicit Tree(const std::string& groups) {
    write("/proc/meminfo", "MemTotal:        2048000 kB\nMemFree:  1 kB\nMemAvailable:    1024000 kB\n");
    write("/proc/self/cgroup", groups);
  }

  void write(const std::string& path, const std::string& text) const {
    const std::filesystem::path whole = folder.path().string() + path;
    std::filesystem::create_directories(whole.parent_path());
    std::ofstream(whole) << text;
  }

  void version_2(const std::string& group, const std::string& limit, std::uint64_t used, std::uint64_t cache) const {
    const auto path = "/sys/fs/cgroup" + group;
    write(path + "/memory.max", limit + "\n");
    write(path + "/memory.current", std::to_string(used) + "\n");
    write(path + "/memory.stat", "anon 5\nfile 9\nshmem 7\ninactive_file " + std::to_string(cache / 2) +
                                     "\nactive_file " + std::to_string(cache - cache / 2) + "\nunevictable 3\n");
  }

  void version_1(const std::string& group, std::uint64_t limit, std::uint64_t used, std::uint64_t cache) const {
    const auto path = "/sys/fs/cgroup/memory" + group;
    write(path + "/memory.limit_in_bytes", std::to_string(limit) + "\n");
    write(path + "/memory.usage_in_bytes", std::to_string(used) + "\n");
    write(path + "/memory.stat", "cache 99\ninactive_file 1\nactive_file 1\ntotal_inactive_file " +
                                     std::to_string(cache) + "\ntotal_active_file 0\n");
  }

  AvailableMemory available() const {
    const auto memory = available_memory_below(folder.path().string());
    REQUIRE(memory);
    return *memory;
  }
};

}  // namespace

TEST_CASE("without control groups the machine's available memory counts") {
  const Tree tree("");
  CHECK(tree.available().bytes == 1000 * mib);
  CHECK(tree.available().limited_by == "the machine");
}

TEST_CASE("version 2: a limit minus what is used and is not page cache, in the group and in those above it") {
  const Tree tree("0::/jobs/7\n");
  tree.version_2("", std::to_string(900 * mib), 20 * mib, 5 * mib);
  CHECK(tree.available().bytes == 885 * mib);  // as in a container, where the path is not visible
  tree.version_2("/jobs/7", std::to_string(500 * mib), 300 * mib, 100 * mib);
  CHECK(tree.available().bytes == 300 * mib);
  CHECK(tree.available().limited_by == "the control group /sys/fs/cgroup/jobs/7");
  CHECK(held_by_group(tree.folder.path().string() + "/sys/fs/cgroup/jobs/7", 2) == 200 * mib);
  CHECK(held_by_group("/nothing", 2) == 0);
  tree.version_2("/jobs", std::to_string(400 * mib), 350 * mib, 0);  // siblings use it as well
  CHECK(tree.available().bytes == 50 * mib);
  CHECK(tree.available().limited_by == "the control group /sys/fs/cgroup/jobs");
  tree.version_2("/jobs/7", std::to_string(100 * mib), 200 * mib, 50 * mib);
  CHECK(tree.available().bytes == 0);
  for (const char* group : {"", "/jobs", "/jobs/7"}) tree.version_2(group, std::to_string(5000 * mib), 0, 0);
  CHECK(tree.available().limited_by == "the machine");
}

TEST_CASE("version 2: the size from which the kernel slows processes down is a limit, the lower one counts") {
  const Tree tree("0::/jobs/7\n");
  const auto available = [&](const std::string& max, const std::string& high) {
    tree.version_2("/jobs/7", max, 10 * mib, 0);
    tree.write("/sys/fs/cgroup/jobs/7/memory.high", high + "\n");
    return tree.available().bytes;
  };
  CHECK(available("max", std::to_string(200 * mib)) == 190 * mib);
  CHECK(available(std::to_string(150 * mib), std::to_string(200 * mib)) == 140 * mib);
  CHECK(available(std::to_string(200 * mib), std::to_string(150 * mib)) == 140 * mib);
  CHECK(available(std::to_string(150 * mib), "max") == 140 * mib);
}

TEST_CASE("version 1: totals of the group and those below it; memory mounted with other controllers") {
  for (const auto* line :
       {"9:memory:/jobs\n", "9:cpu,memory:/jobs\n8:pids:/other\n", "9:memory,hugetlb:/jobs\n0::/x\n"}) {
    const Tree tree(line);
    tree.version_1("/jobs", 600 * mib, 200 * mib, 150 * mib);
    CHECK(tree.available().bytes == 550 * mib);
    CHECK(tree.available().limited_by == "the control group /sys/fs/cgroup/memory/jobs");
  }
}

TEST_CASE("text that is not what the kernel writes is ignored") {
  for (const auto* groups : {"memory", "::", ":memory", "9:memories:/jobs\n", "0:x:/jobs\n", "\n\n"}) {
    const Tree tree(groups);
    tree.version_1("/jobs", mib, mib, 0);
    tree.version_2("/jobs", "1", 0, 0);
    CHECK(tree.available().bytes == 1000 * mib);
  }
  const Tree tree("0::/a\n");
  tree.version_2("/a", "-1", 0, 0);
  CHECK(tree.available().bytes == 1000 * mib);
  tree.write("/proc/meminfo", "MemFree: 7 kB\n");
  CHECK(!available_memory_below(tree.folder.path().string()));
}

TEST_CASE("what fits leaves as much to work with, at most 32 MiB") {
  const auto fits_in = [](std::uint64_t size, std::uint64_t available) { return fits(size, {available, "the test"}); };
  CHECK((fits_in(0, 0) && fits_in(1, 2) && !fits_in(1, 1)));
  CHECK((fits_in(10 * mib, 20 * mib) && !fits_in(10 * mib + 1, 20 * mib)));
  CHECK((fits_in(100 * mib, 132 * mib) && !fits_in(100 * mib, 132 * mib - 1)));
  CHECK((!fits_in(UINT64_MAX, UINT64_MAX) && !fits_in(UINT64_MAX - 1, mib)));
  CHECK(shortage(3, {2, "the test"}) ==
        "3 bytes of memory and 3 bytes of working memory are needed, but only 2 may be used (limited by the test)");
}

}  // namespace onecopy
