#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ctime>

#include "os/os.hpp"

namespace onecopy::os {

Result<Fd> open_folder(const std::string& path) noexcept {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return {{}, errno};
  return {Fd(fd), 0};
}

Result<Fd> create_unnamed(int /*folder*/) noexcept { return {{}, EOPNOTSUPP}; }

bool can_link_unnamed(int /*fd*/) { return false; }

int link_unnamed(int /*fd*/, const Name& /*to*/) { return EOPNOTSUPP; }

Result<Fd> create_sealable(const std::string& /*name*/) { return {{}, EOPNOTSUPP}; }

int seal(int /*fd*/) noexcept { return EOPNOTSUPP; }

bool is_sealed(int /*fd*/) noexcept { return false; }

int reserve_space(int fd, ByteRange range) noexcept {
  const int error = ::posix_fallocate(fd, static_cast<off_t>(range.offset), static_cast<off_t>(range.length));
  return error < 0 ? errno : error;  // POSIX: the error is returned; the C library of zig 0.17 returns -1
}

Outcome start_writeback(int /*fd*/, ByteRange /*range*/) noexcept { return Outcome::unsupported; }

int write_out(int fd, ByteRange /*range*/) noexcept { return sync_file(fd); }

Result<bool> is_open_for_writing(int /*fd*/) noexcept { return {false, EOPNOTSUPP}; }

int write_back(int fd) noexcept { return sync_file(fd); }

Result<Fd> reopen_direct(int /*fd*/) { return {{}, EOPNOTSUPP}; }

Result<Fd> reopen_direct_writable(int /*fd*/) { return {{}, EOPNOTSUPP}; }

Result<Fd> reopen_read(int /*fd*/) { return {{}, EOPNOTSUPP}; }

Result<ContentFacts> content_facts(int fd, bool /*ask*/) noexcept {
  struct stat facts{};
  if (::fstat(fd, &facts) != 0) return {{}, errno};
  const auto ns = [](const struct timespec& time) { return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec; };
#if defined(__APPLE__)
  const auto& written = facts.st_mtimespec;
  const auto& changed = facts.st_ctimespec;
#else
  const auto& written = facts.st_mtim;
  const auto& changed = facts.st_ctim;
#endif
  return {{static_cast<std::uint64_t>(facts.st_dev), static_cast<std::uint64_t>(facts.st_ino),
           static_cast<std::uint64_t>(facts.st_size), ns(written), ns(changed)}};
}

Result<std::string> name_of(int /*fd*/) { return {{}, EOPNOTSUPP}; }

}  // namespace onecopy::os
