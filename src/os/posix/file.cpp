#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "os/os.hpp"

namespace onecopy::os {
namespace {

// Linux moves at most 0x7ffff000 bytes a call; ask for less, so that a short answer means the end of the file.
constexpr std::size_t largest_transfer = std::size_t{1} << 30U;

FileFacts facts_from(const struct stat& status) noexcept {
  FileFacts facts;
  facts.device = static_cast<std::uint64_t>(status.st_dev);
  facts.inode = static_cast<std::uint64_t>(status.st_ino);
  facts.size = static_cast<std::uint64_t>(status.st_size);
#if defined(__APPLE__)
  const auto& time = status.st_mtimespec;
#else
  const auto& time = status.st_mtim;
#endif
  facts.mtime_ns = static_cast<std::int64_t>(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
  facts.owner = static_cast<std::uint64_t>(status.st_uid);
  facts.permissions = static_cast<unsigned>(status.st_mode) & 07777U;
  if (S_ISREG(status.st_mode)) facts.kind = FileKind::regular;
  if (S_ISDIR(status.st_mode)) facts.kind = FileKind::folder;
  if (S_ISLNK(status.st_mode)) facts.kind = FileKind::link;
  return facts;
}

Result<Fd> open_itself(const std::string& path, int flags) noexcept {
  const int fd = ::open(path.c_str(), flags | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0600);
  if (fd < 0) return {{}, errno};
  return {Fd(fd), 0};
}

}  // namespace

void Fd::close() noexcept {
  if (fd_ >= 0) ::close(fd_);  // no retry on EINTR: POSIX leaves the descriptor's state open, Linux has closed it
  fd_ = -1;
}

Result<Fd> open_read(const std::string& path) noexcept {
  // O_NONBLOCK: opening a FIFO that nobody writes to would wait for ever; regular files ignore it.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) return {{}, errno};
  return {Fd(fd), 0};
}

Result<Fd> open_no_link(const std::string& path) noexcept { return open_itself(path, O_RDONLY); }

Result<Fd> open_or_create(const std::string& path) noexcept { return open_itself(path, O_RDWR | O_CREAT); }

Result<Fd> open_existing(const std::string& path) noexcept { return open_itself(path, O_RDWR); }

Result<Fd> duplicate(int fd) noexcept {
  const int copy = ::fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (copy < 0) return {{}, errno};
  return {Fd(copy), 0};
}

Result<FileFacts> facts_of(int fd) noexcept {
  struct stat status{};
  if (::fstat(fd, &status) != 0) return {{}, errno};
  return {facts_from(status), 0};
}

Result<FileFacts> facts_of(const std::string& path) noexcept {
  struct stat status{};
  if (::stat(path.c_str(), &status) != 0) return {{}, errno};
  return {facts_from(status), 0};
}

Result<FileFacts> facts_of_entry(const std::string& path) noexcept {
  struct stat status{};
  if (::lstat(path.c_str(), &status) != 0) return {{}, errno};
  return {facts_from(status), 0};
}

Result<std::size_t> read_at(int fd, MutableBytes into, std::uint64_t offset) noexcept {
  std::size_t done = 0;
  while (done < into.size()) {
    const std::size_t want = std::min(into.size() - done, largest_transfer);
    const ssize_t got = ::pread(fd, into.data() + done, want, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return {done, errno};
    if (got == 0) break;  // the end of the file
    done += static_cast<std::size_t>(got);
  }
  return {done, 0};
}

Result<std::size_t> write_at(int fd, Bytes from, std::uint64_t offset) noexcept {
  std::size_t done = 0;
  while (done < from.size()) {
    const std::size_t want = std::min(from.size() - done, largest_transfer);
    const ssize_t put = ::pwrite(fd, from.data() + done, want, static_cast<off_t>(offset + done));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return {done, errno};
    if (put == 0) return {done, ENOSPC};
    done += static_cast<std::size_t>(put);
  }
  return {done, 0};
}

int set_size(int fd, std::uint64_t size) noexcept {
  int result = 0;
  do result = ::ftruncate(fd, static_cast<off_t>(size));
  while (result != 0 && errno == EINTR);
  return result == 0 ? 0 : errno;
}

int sync_file(int fd) noexcept { return ::fsync(fd) == 0 ? 0 : errno; }

int sync_folder(const std::string& folder) noexcept {
  const Fd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd) return errno;
  return sync_file(fd.get());
}

int rename_file(const std::string& from, const std::string& to) noexcept {
  return ::rename(from.c_str(), to.c_str()) == 0 ? 0 : errno;
}

int remove_file(const std::string& path) noexcept { return ::unlink(path.c_str()) == 0 ? 0 : errno; }

int create_folder(const std::string& path) noexcept { return ::mkdir(path.c_str(), 0700) == 0 ? 0 : errno; }

int set_written(int fd, std::int64_t mtime_ns) noexcept {
  constexpr std::int64_t second = 1'000'000'000;
  const std::int64_t part = (mtime_ns % second + second) % second;
  std::array<struct timespec, 2> times{};  // of the last access, which stays, and of the last write
  times[0].tv_nsec = UTIME_OMIT;
  times[1].tv_sec = static_cast<time_t>((mtime_ns - part) / second);
  times[1].tv_nsec = static_cast<long>(part);
  return ::futimens(fd, times.data()) == 0 ? 0 : errno;
}

int set_times_now(const std::string& path) noexcept {
  return ::utimensat(AT_FDCWD, path.c_str(), nullptr, AT_SYMLINK_NOFOLLOW) == 0 ? 0 : errno;
}

Result<std::uint64_t> free_space(int fd) noexcept {
  struct statvfs facts{};
  if (::fstatvfs(fd, &facts) != 0) return {0, errno};
  if (facts.f_blocks == 0) return {0, ENOTSUP};  // memory without a limit of its own
  const auto blocks = ::geteuid() == 0 ? facts.f_bfree : facts.f_bavail;
  return {static_cast<std::uint64_t>(blocks) * static_cast<std::uint64_t>(facts.f_frsize), 0};
}

bool try_lock(int fd) noexcept { return ::flock(fd, LOCK_EX | LOCK_NB) == 0; }

bool lock(int fd) noexcept {
  int result = 0;
  do result = ::flock(fd, LOCK_EX);
  while (result != 0 && errno == EINTR);
  return result == 0;
}

}  // namespace onecopy::os
