#include "files/available_memory.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include "base/numbers.hpp"
#include "onecopy/base/bytes.hpp"
#include "onecopy/base/error.hpp"
#include "os/os.hpp"

namespace onecopy {
namespace {

// An operation needs memory beside what it allocates: pages that are being read or written, which the kernel cannot
// drop at that moment, such as two windows of read-ahead of 8 MiB. With less, Linux ends a process of a control group
// although page cache is left: with 16 MiB 2 of 1,000 random runs in groups of 32 to 64 MiB.
std::uint64_t spare_beside(std::uint64_t size) {
  constexpr std::uint64_t most = std::uint64_t{32} << 20U;
  return std::min(size, most);
}

bool has_memory(std::string_view controllers) {
  for (;;) {
    const auto comma = controllers.find(',');
    if (controllers.substr(0, comma) == "memory") return true;
    if (comma == std::string_view::npos) return false;
    controllers.remove_prefix(comma + 1);
  }
}

// Where a version of control groups is mounted, and the names of its files and of page cache in `memory.stat`.
struct Version {
  const char* mount;
  std::array<const char*, 2> limits;  // the kernel kills at the first, and slows processes down endlessly at the second
  const char* usage;
  std::array<const char*, 2> page_cache;
};

constexpr Version version_1{"/sys/fs/cgroup/memory",
                            {"memory.limit_in_bytes", "memory.limit_in_bytes"},
                            "memory.usage_in_bytes",
                            {"\ntotal_inactive_file", "\ntotal_active_file"}};
constexpr Version version_2{
    "/sys/fs/cgroup", {"memory.max", "memory.high"}, "memory.current", {"\ninactive_file", "\nactive_file"}};

std::uint64_t held_by(const std::string& group, const Version& version) {
  const auto used = number_after(os::read_text(group + "/" + version.usage), "").value_or(0);
  const auto stat = "\n" + os::read_text(group + "/memory.stat");
  std::uint64_t droppable = 0;
  for (const char* label : version.page_cache) droppable += number_after(stat, label).value_or(0);
  return used - std::min(used, droppable);
}

// The memory that a group's limit leaves; nullopt if it has no limit ("max" is not a number).
std::optional<std::uint64_t> left_in(const std::string& group, const Version& version) {
  std::optional<std::uint64_t> lowest;
  for (const char* file : version.limits)
    if (const auto limit = number_after(os::read_text(group + "/" + file), ""))
      lowest = std::min(lowest.value_or(*limit), *limit);
  if (!lowest) return std::nullopt;
  return *lowest - std::min(*lowest, held_by(group, version));
}

// The minimum over a group and all groups above it. Inside a container the path may name a group that is not visible;
// the root of the mount is then the container's own group.
void limit_by_groups(AvailableMemory& memory, const std::string& root, const Version& version, std::string group) {
  for (;;) {
    const auto path = version.mount + group;
    const auto left = left_in(root + path, version);
    if (left && *left < memory.bytes) memory = {*left, "the control group " + path};
    if (group.empty() || group == "/") return;
    group.resize(group.find_last_of('/'));
  }
}

}  // namespace

std::optional<AvailableMemory> available_memory_below(const std::string& root) {
  const auto kib = number_after(os::read_text(root + "/proc/meminfo"), "MemAvailable:");
  if (!kib) return std::nullopt;
  AvailableMemory memory{*kib * 1024, "the machine"};
  const std::string text = os::read_text(root + "/proc/self/cgroup");
  for (std::string_view rest = text; !rest.empty();) {  // lines such as "4:cpu,memory:/jobs/7" and "0::/jobs/7"
    const auto line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    const auto first = line.find(':');
    const auto second = first == std::string_view::npos ? first : line.find(':', first + 1);
    if (second == std::string_view::npos) continue;
    const auto controllers = line.substr(first + 1, second - first - 1);
    const std::string group(line.substr(second + 1));
    if (controllers.empty()) limit_by_groups(memory, root, version_2, group);
    if (has_memory(controllers)) limit_by_groups(memory, root, version_1, group);
  }
  return memory;
}

bool fits(std::uint64_t size, const AvailableMemory& memory) {
  return in_bounds(memory.bytes, size, spare_beside(size));
}

std::string shortage(std::uint64_t size, const AvailableMemory& memory) {
  return std::to_string(size) + " bytes of memory and " + std::to_string(spare_beside(size)) +
         " bytes of working memory are needed, but only " + std::to_string(memory.bytes) + " may be used (limited by " +
         memory.limited_by + ")";
}

std::uint64_t held_by_group(const std::string& group, int version) {
  return held_by(group, version == 1 ? version_1 : version_2);
}

void expect_memory(std::uint64_t size, const char* operation, const std::filesystem::path& path,
                   const std::string& instead) {
  const auto memory = available_memory();
  if (!memory || fits(size, *memory)) return;
  throw OsError(operation, path.native(), ENOMEM, shortage(size, *memory) + (instead.empty() ? "" : ": " + instead));
}

std::optional<AvailableMemory> available_memory() { return available_memory_below({}); }

}  // namespace onecopy
