#include <fcntl.h>
#include <unistd.h>

#include <string>

#include "os/os.hpp"

namespace onecopy::os {
namespace {

std::string own_descriptor(int fd) { return "/proc/self/fd/" + std::to_string(fd); }

}  // namespace

Result<Fd> create_unnamed(const std::string& folder) noexcept {
  const int fd = ::open(folder.c_str(), O_RDWR | O_TMPFILE | O_CLOEXEC, 0666);
  if (fd >= 0) return {Fd(fd), 0};
  // EISDIR: a kernel that does not know the flag; EOPNOTSUPP, EINVAL: a file system that does not (overlay, NFS, FUSE);
  // ENOSYS: a sandbox. All mean the same to the caller.
  const bool missing = errno == EISDIR || errno == EINVAL || errno == ENOSYS;
  return {{}, missing ? EOPNOTSUPP : errno};
}

Result<Fd> create_named(const std::string& path) noexcept {
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0) return {{}, errno};
  return {Fd(fd), 0};
}

int link_unnamed(int fd, const std::string& path) {
  // Through /proc, because AT_EMPTY_PATH needs a privilege.
  const std::string from = own_descriptor(fd);
  return ::linkat(AT_FDCWD, from.c_str(), AT_FDCWD, path.c_str(), AT_SYMLINK_FOLLOW) == 0 ? 0 : errno;
}

int reserve_space(int fd, std::uint64_t size) noexcept {
  // Not posix_fallocate: where the file system cannot, glibc writes a byte into every block.
  int error = 0;
  do error = ::fallocate(fd, 0, 0, static_cast<off_t>(size)) == 0 ? 0 : errno;
  while (error == EINTR);
  return error == ENOSYS || error == EPERM ? EOPNOTSUPP : error;
}

Outcome start_writeback(int fd, ByteRange range) noexcept {
  const int result = ::sync_file_range(fd, static_cast<off64_t>(range.offset), static_cast<off64_t>(range.length),
                                       SYNC_FILE_RANGE_WRITE);
  if (result == 0) return Outcome::applied;
  return errno == ENOSYS ? Outcome::unsupported : Outcome::refused;
}

Result<Fd> reopen_direct(int fd) {
  // A new open file description: setting O_DIRECT on the shared one would change every reader of it.
  const int direct = ::open(own_descriptor(fd).c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC);
  if (direct < 0) return {{}, errno};
  return {Fd(direct), 0};
}

}  // namespace onecopy::os
