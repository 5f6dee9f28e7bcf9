#include <dirent.h>
#include <fcntl.h>
#include <pwd.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <ctime>
#include <memory>
#include <string_view>

#include "os/os.hpp"
#include "os/retried.hpp"

namespace onecopy::os {
namespace {

// Linux moves at most 0x7ffff000 bytes a call; ask for less, so that a short answer means the end of the file.
constexpr std::size_t largest_transfer = std::size_t{1} << 30U;

constexpr unsigned all_may_write = 0666;

FileFacts facts_from(const struct stat& status) noexcept {
  FileFacts facts;
  facts.allocated = static_cast<std::uint64_t>(status.st_blocks) * 512;
  facts.device = static_cast<std::uint64_t>(status.st_dev);
  facts.inode = static_cast<std::uint64_t>(status.st_ino);
  facts.size = static_cast<std::uint64_t>(status.st_size);
#if defined(__APPLE__)
  const auto& time = status.st_mtimespec;
#else
  const auto& time = status.st_mtim;
#endif
  facts.mtime_ns = static_cast<std::int64_t>(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
  facts.owner = known_user(static_cast<std::uint64_t>(status.st_uid));
  facts.links = static_cast<std::uint64_t>(status.st_nlink);
  facts.permissions = static_cast<unsigned>(status.st_mode) & 07777U;
  if (S_ISREG(status.st_mode)) facts.kind = FileKind::regular;
  if (S_ISDIR(status.st_mode)) facts.kind = FileKind::folder;
  if (S_ISLNK(status.st_mode)) facts.kind = FileKind::link;
  return facts;
}

bool is_regular(const Name& name, int flags) noexcept {
  struct stat status{};
  const int follow = (flags & O_NOFOLLOW) != 0 ? AT_SYMLINK_NOFOLLOW : 0;
  return ::fstatat(name.folder, name.text.c_str(), &status, follow) == 0 && S_ISREG(status.st_mode);
}

// O_NONBLOCK: opening a FIFO without a writer would block for ever. A regular file on which another process has a lease
// fails with EWOULDBLOCK: without the flag, the call waits until the kernel has taken the lease back.
Result<Fd> opened(const Name& name, int flags) noexcept {
  const auto open = [&](int more) noexcept {
    return retried([&] { return ::openat(name.folder, name.text.c_str(), flags | O_CLOEXEC | O_NOCTTY | more, 0600); });
  };
  int fd = open(O_NONBLOCK);
  if (fd < 0 && errno == EWOULDBLOCK && is_regular(name, flags)) fd = open(0);
  if (fd < 0) return {{}, errno};
  return {Fd(fd), 0};
}

// Whether only the kernel can say if a file is this user's: the id of all unknown users is that of this one.
bool is_disputed(const struct stat& status) noexcept {
  const auto owner = static_cast<std::uint64_t>(status.st_uid);
  return owner == user_id() && is_overflow_id(owner);
}

Result<FileFacts> facts_at(const Name& name, int flags) noexcept {
  struct stat status{};
  if (::fstatat(name.folder, name.text.c_str(), &status, flags) != 0) return {{}, errno};
  if (!is_disputed(status) || !(S_ISREG(status.st_mode) || S_ISDIR(status.st_mode))) return {facts_from(status), 0};
  const int follow = (flags & AT_SYMLINK_NOFOLLOW) != 0 ? O_NOFOLLOW : 0;
  if (const auto fd = opened(name, O_RDONLY | follow)) return facts_of(fd.value.get());
  auto facts = facts_from(status);
  facts.owner = unknown_user;
  return {facts, 0};
}

}  // namespace

Name::Name(std::string path) noexcept : folder(AT_FDCWD), text(std::move(path)) {}

void Fd::close() noexcept {
  if (fd_ >= 0) ::close(fd_);  // no retry on EINTR: POSIX leaves the descriptor's state open, Linux has closed it
  fd_ = -1;
}

Result<Fd> open_read(const Name& name) noexcept { return opened(name, O_RDONLY); }

Result<Fd> open_no_link(const Name& name) noexcept { return opened(name, O_RDONLY | O_NOFOLLOW); }

Result<Fd> open_or_create(const Name& name) noexcept { return opened(name, O_RDWR | O_CREAT | O_NOFOLLOW); }

Result<Fd> open_existing(const Name& name) noexcept { return opened(name, O_RDWR | O_NOFOLLOW); }

Result<Fd> create_named(const Name& name) noexcept { return opened(name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW); }

Result<Fd> duplicate(int fd) noexcept {
  const int copy = ::fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (copy < 0) return {{}, errno};
  return {Fd(copy), 0};
}

Result<FileFacts> facts_of(int fd) noexcept {
  struct stat status{};
  if (::fstat(fd, &status) != 0) return {{}, errno};
  auto facts = facts_from(status);
  if (is_disputed(status)) facts.owner = is_owned(fd) ? user_id() : unknown_user;
  return {facts, 0};
}

Result<FileFacts> facts_of(const Name& name) noexcept { return facts_at(name, 0); }

Result<FileFacts> facts_of_entry(const Name& name) noexcept { return facts_at(name, AT_SYMLINK_NOFOLLOW); }

Result<std::vector<std::string>> names_in(int folder) {
  auto again = opened({folder, "."}, O_RDONLY | O_DIRECTORY);  // a position of its own
  if (!again) return {{}, again.error};
  const auto close = [](DIR* stream) { ::closedir(stream); };
  const std::unique_ptr<DIR, decltype(close)> stream(::fdopendir(again.value.get()), close);
  if (!stream) return {{}, errno};
  (void)again.value.release();  // owned by the stream now
  std::vector<std::string> names;
  for (;;) {
    errno = 0;
    const dirent* entry = ::readdir(stream.get());  // NOLINT(concurrency-mt-unsafe): a stream of our own
    if (entry == nullptr) return {std::move(names), errno};
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
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
  return error_of([&] { return ::ftruncate(fd, static_cast<off_t>(size)); });
}

int sync_file(int fd) noexcept {
  return error_of([&] { return ::fsync(fd); });
}

int sync_folder(const Name& folder) noexcept {
  const auto fd = opened(folder, O_RDONLY | O_DIRECTORY);
  return fd ? sync_file(fd.value.get()) : fd.error;
}

int rename_file(const Name& from, const Name& to) noexcept {
  return error_of([&] { return ::renameat(from.folder, from.text.c_str(), to.folder, to.text.c_str()); });
}

int remove_file(const Name& name) noexcept {
  return error_of([&] { return ::unlinkat(name.folder, name.text.c_str(), 0); });
}

int create_folder(const std::string& path, unsigned permissions) noexcept {
  if (::mkdir(path.c_str(), static_cast<mode_t>(permissions)) != 0) return errno;
  const auto made = opened(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  const auto facts = made ? facts_of(made.value.get()) : Result<FileFacts>{{}, made.error};
  if (!facts || (facts.value.permissions & 0777U) == permissions) return facts.error;
  return set_permissions(made.value.get(), permissions | (facts.value.permissions & 07000U));  // its group's bit stays
}

int why_not_writable(const std::string& folder) noexcept {
  return ::faccessat(AT_FDCWD, folder.c_str(), W_OK | X_OK, AT_EACCESS) == 0 ? 0 : errno;
}

unsigned permissions_of_new_files() noexcept {
  const Fd fd(::open("/proc/self/status", O_RDONLY | O_CLOEXEC));
  std::array<char, 512> text{};  // it is the second line
  const ssize_t got = fd ? ::read(fd.get(), text.data(), text.size() - 1) : 0;
  constexpr std::string_view label = "\nUmask:\t";
  const std::string_view all(text.data(), got > 0 ? static_cast<std::size_t>(got) : 0);
  const std::size_t at = all.find(label);
  unsigned mask = 077;  // umask(2) reads it only by changing it for all threads: without /proc, files are private
  if (at != std::string_view::npos)
    (void)std::from_chars(all.data() + at + label.size(), all.data() + all.size(), mask, 8);
  return all_may_write & ~mask;
}

int set_written(int fd, std::int64_t mtime_ns) noexcept {
  constexpr std::int64_t second = 1'000'000'000;
  const std::int64_t part = (mtime_ns % second + second) % second;
  std::array<struct timespec, 2> times{};  // of the last access, which stays, and of the last write
  times[0].tv_nsec = UTIME_OMIT;
  times[1].tv_sec = static_cast<time_t>((mtime_ns - part) / second);
  times[1].tv_nsec = static_cast<long>(part);
  return error_of([&] { return ::futimens(fd, times.data()); });
}

// Without explicit times the kernel takes those of its last timer interrupt, which are equal for several milliseconds.
int set_times_now(int fd) noexcept {
  std::array<struct timespec, 2> times{};
  if (::clock_gettime(CLOCK_REALTIME, times.data()) != 0) return errno;
  times[1] = times[0];
  return error_of([&] { return ::futimens(fd, times.data()); });
}

int set_permissions(int fd, unsigned permissions) noexcept {
  return error_of([&] { return ::fchmod(fd, static_cast<mode_t>(permissions)); });
}

std::string name_of_user(std::uint64_t id) {
  if (id == unknown_user) return "a user without an id in this user namespace";
  auto text = "user " + std::to_string(id);
  struct passwd entry{};
  struct passwd* found = nullptr;
  std::array<char, 4096> fields{};
  if (::getpwuid_r(static_cast<uid_t>(id), &entry, fields.data(), fields.size(), &found) == 0 && found != nullptr)
    text.append(" (").append(found->pw_name).append(")");
  return text;
}

Result<std::uint64_t> free_space(int fd) noexcept {
  struct statvfs facts{};
  if (::fstatvfs(fd, &facts) != 0) return {0, errno};
  if (facts.f_blocks == 0) return {0, ENOTSUP};  // memory without a limit of its own
  const auto blocks = ::geteuid() == 0 ? facts.f_bfree : facts.f_bavail;
  return {static_cast<std::uint64_t>(blocks) * static_cast<std::uint64_t>(facts.f_frsize), 0};
}

int try_lock(int fd) noexcept {
  static_assert(EWOULDBLOCK == EAGAIN);
  return ::flock(fd, LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
}

Outcome will_need(int fd, ByteRange range) noexcept {
  const int error =
      ::posix_fadvise(fd, static_cast<off_t>(range.offset), static_cast<off_t>(range.length), POSIX_FADV_WILLNEED);
  return error == 0 ? Outcome::applied : Outcome::refused;
}

int drop_cached(int fd, ByteRange range) noexcept {
  return ::posix_fadvise(fd, static_cast<off_t>(range.offset), static_cast<off_t>(range.length), POSIX_FADV_DONTNEED);
}

std::uint64_t process_id() noexcept { return static_cast<std::uint64_t>(::getpid()); }

std::uint64_t parent_id() noexcept { return static_cast<std::uint64_t>(::getppid()); }

std::uint64_t user_id() noexcept { return static_cast<std::uint64_t>(::geteuid()); }

}  // namespace onecopy::os
