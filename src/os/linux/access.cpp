#include <fcntl.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <climits>
#include <csignal>
#include <string>

#include "os/linux/abi.hpp"
#include "os/os.hpp"
#include "os/retried.hpp"

namespace onecopy::os {
namespace {

std::string own_descriptor(int fd) { return "/proc/self/fd/" + std::to_string(fd); }

// A new open file description, because the flags of a shared one apply to every descriptor of it.
Result<Fd> reopen(int fd, int flags) {
  const int again = retried([&] { return ::open(own_descriptor(fd).c_str(), flags | O_CLOEXEC); });
  if (again < 0) return {{}, errno};
  return {Fd(again), 0};
}

// On overlayfs sync_file_range reports success and does nothing: dirty pages belong to an inode of the file system
// below.
bool is_stacked(int fd) noexcept {
  const auto system = file_system_of(fd);
  return system && system.value.storage == Storage::local && system.value.stacked;
}

// FIEMAP_FLAG_SYNC writes dirty pages back, and reaches the inode that has them. Unlike fdatasync it commits no journal
// and flushes no disk: 3 us instead of 3 ms for a clean file.
int write_back_by_fiemap(int fd) noexcept {
  struct fiemap request{};
  request.fm_length = 1;
  request.fm_flags = FIEMAP_FLAG_SYNC;
  auto* const asked = &request;  // NOLINT(misc-const-correctness): the kernel writes to it
  // Not ioctl(): its second parameter is an int in musl, and an unsigned long in glibc.
  return error_of([=] { return static_cast<int>(::syscall(SYS_ioctl, fd, FS_IOC_FIEMAP, asked)); });
}

constexpr int no_change = F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK;

}  // namespace

Result<Fd> open_folder(const std::string& path) noexcept {
  const int fd = retried([&] { return ::open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC); });
  if (fd < 0) return {{}, errno};
  return {Fd(fd), 0};
}

Result<Fd> create_unnamed(int folder) noexcept {
  const int fd = retried([&] { return ::openat(folder, ".", O_RDWR | O_TMPFILE | O_CLOEXEC, 0666); });
  if (fd >= 0) return {Fd(fd), 0};
  // EISDIR: a kernel without the flag; EOPNOTSUPP, EINVAL: a file system without it (overlay, NFS, FUSE); ENOSYS: a
  // sandbox. The caller handles all alike.
  const bool missing = errno == EISDIR || errno == EINVAL || errno == ENOSYS;
  return {{}, missing ? EOPNOTSUPP : errno};
}

// Through /proc, because AT_EMPTY_PATH needs a privilege.
bool can_link_unnamed(int fd) { return ::access(own_descriptor(fd).c_str(), F_OK) == 0; }

int link_unnamed(int fd, const Name& to) {
  const std::string from = own_descriptor(fd);
  return error_of([&] { return ::linkat(AT_FDCWD, from.c_str(), to.folder, to.text.c_str(), AT_SYMLINK_FOLLOW); });
}

Result<Fd> create_sealable(const std::string& name) {
  constexpr std::size_t longest = 249;  // the kernel's limit
  const std::string label = name.substr(0, longest);
  constexpr unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  int fd = ::memfd_create(label.c_str(), flags | abi::mfd_noexec_seal);
  if (fd < 0 && errno == EINVAL) fd = ::memfd_create(label.c_str(), flags);  // a kernel before 6.3
  if (fd >= 0) return {Fd(fd), 0};
  return {{}, errno == ENOSYS || errno == EPERM ? EOPNOTSUPP : errno};  // an old kernel, a sandbox
}

int seal(int fd) noexcept { return ::fcntl(fd, F_ADD_SEALS, no_change | F_SEAL_SEAL) == 0 ? 0 : errno; }

bool is_sealed(int fd) noexcept {
  const int seals = ::fcntl(fd, F_GET_SEALS);
  return seals >= 0 && (seals & no_change) == no_change;
}

int reserve_space(int fd, ByteRange range) noexcept {
  // Not posix_fallocate: on file systems without fallocate, glibc writes a byte into every block.
  const int error =
      ::fallocate(fd, 0, static_cast<off_t>(range.offset), static_cast<off_t>(range.length)) == 0 ? 0 : errno;
  return error == ENOSYS || error == EPERM ? EOPNOTSUPP : error;
}

Outcome start_writeback(int fd, ByteRange range) noexcept {
  if (is_stacked(fd)) return Outcome::unsupported;
  const int result = retried([&] {
    return ::sync_file_range(fd, static_cast<off_t>(range.offset), static_cast<off_t>(range.length),
                             SYNC_FILE_RANGE_WRITE);
  });
  if (result == 0) return Outcome::applied;
  return errno == ENOSYS ? Outcome::unsupported : Outcome::refused;
}

int write_out(int fd, ByteRange range) noexcept {
  if (is_stacked(fd)) return write_back_by_fiemap(fd) == 0 ? 0 : sync_file(fd);
  constexpr unsigned flags = SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
  const auto offset = static_cast<off_t>(range.offset);
  if (retried([&] { return ::sync_file_range(fd, offset, static_cast<off_t>(range.length), flags); }) == 0) return 0;
  // A sandbox or file system without sync_file_range: flushing the whole file includes this range.
  return errno == ENOSYS || errno == EPERM ? sync_file(fd) : errno;
}

// The kernel grants a read lease only while no process has the inode open for writing, a mapping or a write under way
// included. Through a descriptor of its own, because a lease belongs to the open file. SIGURG, which is ignored by
// default, instead of SIGIO, which ends a process: the kernel sends it if a writer comes in the instant between.
Result<bool> is_open_for_writing(int fd) noexcept {
  const auto own = reopen(fd, O_RDONLY | O_NONBLOCK);
  if (!own || ::fcntl(own.value.get(), F_SETSIG, SIGURG) != 0) return {false, EOPNOTSUPP};
  if (::fcntl(own.value.get(), F_SETLEASE, F_RDLCK) == 0) {
    (void)::fcntl(own.value.get(), F_SETLEASE, F_UNLCK);
    return {false, 0};
  }
  if (errno == EAGAIN) return {true, 0};
  return {false, errno == EACCES ? EACCES : EOPNOTSUPP};
}

int write_back(int fd) noexcept {
  if (write_back_by_fiemap(fd) == 0) return 0;
  return is_stacked(fd) ? EOPNOTSUPP : write_out(fd, {0, 0});
}

Result<Fd> reopen_direct(int fd) { return reopen(fd, O_RDONLY | O_DIRECT); }

Result<Fd> reopen_direct_writable(int fd) { return reopen(fd, O_WRONLY | O_DIRECT); }

Result<Fd> reopen_read(int fd) { return reopen(fd, O_RDONLY); }

Result<ContentFacts> content_facts(int fd, bool ask) noexcept {
  struct statx facts{};
  const int flags = AT_EMPTY_PATH | (ask ? AT_STATX_FORCE_SYNC : AT_STATX_DONT_SYNC);
  // Not statx(): musl has it from 1.2.4 on.
  if (retried([&] { return ::syscall(SYS_statx, fd, "", flags, STATX_BASIC_STATS, &facts); }) != 0) return {{}, errno};
  const auto ns = [](const struct statx_timestamp& time) { return time.tv_sec * 1'000'000'000 + time.tv_nsec; };
  return {{.device = makedev(facts.stx_dev_major, facts.stx_dev_minor),
           .inode = facts.stx_ino,
           .size = facts.stx_size,
           .mtime_ns = ns(facts.stx_mtime),
           .ctime_ns = ns(facts.stx_ctime)}};
}

Result<std::string> name_of(int fd) {
  std::string path(PATH_MAX, '\0');
  const ssize_t size = ::readlink(own_descriptor(fd).c_str(), path.data(), path.size());
  if (size < 0) return {{}, errno};
  path.resize(static_cast<std::size_t>(size));
  return {path.substr(path.rfind('/') + 1), 0};
}

}  // namespace onecopy::os
