#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>
#include <csignal>

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cstdio>
#include <utility>

#include "base/numbers.hpp"
#include "os/os.hpp"

namespace onecopy::os {
namespace {

struct NamedFileSystem {
  std::uint32_t magic;
  FileSystem facts;
};

// statfs(2), and linux/magic.h of kernels newer than that page. What is not here counts as local.
constexpr std::array<NamedFileSystem, 28> file_systems{{
    {0x0000EF53, {Storage::local, "ext4", true}},
    {0x58465342, {Storage::local, "xfs", true}},
    {0x9123683E, {Storage::local, "btrfs", true}},
    {0xF2F52010, {Storage::local, "f2fs", true}},
    {0xCA451A4E, {Storage::local, "bcachefs", true}},
    {0x794C7630, {Storage::local, "overlayfs", true, true}},  // as the file system below it, which is not known
    {0x2FC12FC1, {Storage::local, "zfs"}},                    // dates a write through a mapping when it is written back
    {0xE0F5E1E2, {Storage::local, "erofs"}},
    {0x73717368, {Storage::local, "squashfs"}},
    {0x00009660, {Storage::local, "isofs"}},
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
    {0x65735546, {Storage::remote, "fuse", false, true}},  // stacked: with passthrough
    {0x5346414F, {Storage::remote, "afs"}},
    {0x6B414653, {Storage::remote, "afs"}},
    {0x73757245, {Storage::remote, "coda"}},
    {0x47504653, {Storage::remote, "gpfs"}},
    {0x19830326, {Storage::remote, "beegfs"}},
    {0x013111A8, {Storage::remote, "ibrix"}},
    {0x786F4256, {Storage::remote, "vboxsf"}},
}};

// The first three numbers of a small text file of the kernel; {} where it cannot be read.
std::array<std::uint64_t, 3> numbers_in(const char* path) noexcept {
  std::array<char, 128> text{};
  std::array<std::uint64_t, 3> found{};
  const Fd fd(::open(path, O_RDONLY | O_CLOEXEC));
  if (fd.get() >= 0 && ::read(fd.get(), text.data(), text.size() - 1) > 0)
    (void)std::sscanf(text.data(), "%" SCNu64 "%" SCNu64 "%" SCNu64, found.data(), &found[1], &found[2]);
  return found;
}

}  // namespace

Faults faults_of_thread() noexcept {
  struct rusage usage{};
  if (::getrusage(RUSAGE_THREAD, &usage) != 0) return {};
  return {static_cast<std::uint64_t>(usage.ru_minflt), static_cast<std::uint64_t>(usage.ru_majflt)};
}

std::uint64_t cpu_wait_of_thread() noexcept {
  std::array<char, 64> text{};
  const Fd fd(::open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC));
  if (fd.get() < 0 || ::read(fd.get(), text.data(), text.size() - 1) <= 0) return 0;
  std::uint64_t waited = 0;
  return std::sscanf(text.data(), "%*u %" SCNu64, &waited) == 1 ? waited : 0;
}

bool is_overflow_id(std::uint64_t id) noexcept {
  static const std::uint64_t overflow = numbers_in("/proc/sys/kernel/overflowuid")[0];
  constexpr std::uint64_t usual = 65534;
  return id == (overflow == 0 ? usual : overflow);
}

std::uint64_t known_user(std::uint64_t id) noexcept {
  constexpr std::uint64_t all = UINT32_MAX;  // as many as there are: no user is without an id
  return is_overflow_id(id) && numbers_in("/proc/self/uid_map")[2] != all ? unknown_user : id;
}

// The kernel lets only the owner set O_NOATIME, and who has a privilege over files of the users that have an id here.
bool is_owned(int fd) noexcept {
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags < 0 || (flags & O_NOATIME) != 0 || ::fcntl(fd, F_SETFL, flags | O_NOATIME) != 0) return false;
  (void)::fcntl(fd, F_SETFL, flags);
  return true;
}

Outcome end_with_parent() noexcept {
  return ::prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 ? Outcome::applied : Outcome::refused;
}

Outcome name_thread(const char* name) noexcept {
  return ::prctl(PR_SET_NAME, name) == 0 ? Outcome::applied : Outcome::refused;
}

Outcome lower_priority_of_thread() noexcept {
  constexpr int lower = 5;
  errno = 0;
  const int now = ::getpriority(PRIO_PROCESS, 0);  // on Linux, 0 is this thread
  if (errno != 0 || ::setpriority(PRIO_PROCESS, 0, now + lower) != 0) return Outcome::refused;
  return Outcome::applied;
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
