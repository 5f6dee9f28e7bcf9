#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>
#include <csignal>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string_view>
#include <utility>

#include "os/os.hpp"

namespace onecopy::os {
namespace {

// Small kernel files only: what does not fit one page is cut.
std::string read_text(const std::string& path) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::array<char, 8192> text{};
  std::size_t size = 0;
  while (fd && size < text.size()) {
    const ssize_t got = ::read(fd.get(), text.data() + size, text.size() - size);
    if (got <= 0) break;
    size += static_cast<std::size_t>(got);
  }
  return {text.data(), size};
}

std::optional<std::uint64_t> number_after(std::string_view text, std::string_view label) {
  const auto found = text.find(label);
  if (found == std::string_view::npos) return std::nullopt;
  text.remove_prefix(found + label.size());
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end == text.data()) return std::nullopt;
  return number;
}

// The path of our group in /proc/self/cgroup: after "0::" (version 2) or ":memory:" (version 1).
std::optional<std::string> group_path(std::string_view groups, std::string_view label) {
  const auto found = groups.find(label);
  if (found == std::string_view::npos) return std::nullopt;
  groups.remove_prefix(found + label.size());
  return std::string(groups.substr(0, groups.find('\n')));
}

// The files of one version of control groups, and what `memory.stat` calls the pages of files.
struct Groups {
  std::string mount;
  const char* limit;
  const char* usage;
  std::array<const char*, 2> file_pages;
};

// What one group leaves: its limit less what is used and cannot be given back, which pages of files can.
std::uint64_t left_in(const std::string& group, const Groups& names) {
  const auto limit = number_after(read_text(group + "/" + names.limit), "");  // "max" is no number
  if (!limit) return UINT64_MAX;
  const auto used = number_after(read_text(group + "/" + names.usage), "").value_or(0);
  const auto stat = read_text(group + "/memory.stat");
  std::uint64_t file = 0;
  for (const char* label : names.file_pages) file += number_after(stat, label).value_or(0);
  const std::uint64_t kept = used - std::min(used, file);
  return *limit - std::min(*limit, kept);
}

// The least on the way from our group to the root. Inside a container the path may name a group that is not visible
// here; the root of the mount is then the container's own group.
void take_least(MemoryLeft& left, const Groups& names, std::string group) {
  for (;;) {
    const auto path = names.mount + group;
    if (const auto here = left_in(path, names); here < left.bytes) left = {here, path};
    if (group.empty() || group == "/") return;
    group.resize(group.find_last_of('/'));
  }
}

void take_least_of_groups(MemoryLeft& left) {
  const auto groups = read_text("/proc/self/cgroup");
  if (const auto group = group_path(groups, ":memory:"))
    take_least(left,
               {"/sys/fs/cgroup/memory",
                "memory.limit_in_bytes",
                "memory.usage_in_bytes",
                {"\ntotal_inactive_file", "\ntotal_active_file"}},
               *group);
  if (const auto group = group_path(groups, "0::"))
    take_least(left, {"/sys/fs/cgroup", "memory.max", "memory.current", {"\ninactive_file", "\nactive_file"}}, *group);
}

struct NamedFileSystem {
  std::uint32_t magic;
  FileSystem facts;
};

// statfs(2), and linux/magic.h of kernels newer than that page. What is not here counts as local.
constexpr std::array<NamedFileSystem, 18> file_systems{{
    {0x01021994, {Storage::memory, "tmpfs"}},
    {0x858458F6, {Storage::memory, "ramfs"}},
    {0x958458F6, {Storage::memory, "hugetlbfs"}},
    {0x00006969, {Storage::remote, "nfs"}},
    {0xFF534D42, {Storage::remote, "cifs"}},
    {0xFE534D42, {Storage::remote, "smb2"}},
    {0x0000517B, {Storage::remote, "smb"}},
    {0x01021997, {Storage::remote, "9p"}},
    {0x00C36400, {Storage::remote, "ceph"}},
    {0x0BD00BD0, {Storage::remote, "lustre"}},
    {0x65735546, {Storage::remote, "fuse"}},
    {0x5346414F, {Storage::remote, "afs"}},
    {0x6B414653, {Storage::remote, "afs"}},
    {0x73757245, {Storage::remote, "coda"}},
    {0x47504653, {Storage::remote, "gpfs"}},
    {0x19830326, {Storage::remote, "beegfs"}},
    {0x013111A8, {Storage::remote, "ibrix"}},
    {0x786F4256, {Storage::remote, "vboxsf"}},
}};

}  // namespace

Faults faults_of_thread() noexcept {
  struct rusage usage{};
  if (::getrusage(RUSAGE_THREAD, &usage) != 0) return {};
  return {static_cast<std::uint64_t>(usage.ru_minflt), static_cast<std::uint64_t>(usage.ru_majflt)};
}

std::uint64_t process_id() noexcept { return static_cast<std::uint64_t>(::getpid()); }

std::uint64_t parent_id() noexcept { return static_cast<std::uint64_t>(::getppid()); }

std::uint64_t user_id() noexcept { return static_cast<std::uint64_t>(::geteuid()); }

Outcome end_with_parent() noexcept {
  return ::prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 ? Outcome::applied : Outcome::refused;
}

Outcome name_thread(const char* name) noexcept {
  return ::prctl(PR_SET_NAME, name) == 0 ? Outcome::applied : Outcome::refused;
}

Result<MemoryLeft> memory_left() {
  const auto kib = number_after(read_text("/proc/meminfo"), "MemAvailable:");
  if (!kib) return {{}, ENOSYS};
  MemoryLeft left{*kib * 1024, {}};
  take_least_of_groups(left);
  return {std::move(left), 0};
}

Result<std::uint64_t> available_memory() {
  const auto left = memory_left();
  return {left.value.bytes, left.error};
}

Result<std::string> boot_id() {
  std::string text = read_text("/proc/sys/kernel/random/boot_id");
  text.resize(std::min(text.find('\n'), text.size()));
  if (text.empty()) return {{}, ENOSYS};
  return {std::move(text), 0};
}

Result<std::uint64_t> read_ahead(std::uint64_t device) {
  const auto name = std::to_string(major(device)) + ":" + std::to_string(minor(device));
  const auto kib = number_after(read_text("/sys/class/bdi/" + name + "/read_ahead_kb"), "");
  if (!kib) return {0, ENOSYS};
  return {*kib * 1024, 0};
}

Result<FileSystem> file_system_of(int fd) noexcept {
  struct statfs facts{};
  if (::fstatfs(fd, &facts) != 0) return {{}, errno};
  for (const auto& known : file_systems)
    if (known.magic == (static_cast<std::uint64_t>(facts.f_type) & UINT32_MAX)) return {known.facts, 0};
  return {{}, 0};
}

}  // namespace onecopy::os
