#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>
#include <csignal>

#include "os/os.hpp"

namespace onecopy::os {
namespace {

// A lock of the whole file, owned by this open file description: not by the process (F_SETLK, where closing any other
// descriptor of the file releases the lock), and supported by network file systems (unlike flock).
struct flock whole_file() noexcept {
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return lock;
}

// A sandbox without these locks refuses them to all processes alike, so that all use the older locks.
bool is_unknown(int error) noexcept { return error == EINVAL || error == ENOSYS; }

}  // namespace

int try_claim(int fd) noexcept {
  struct flock lock = whole_file();
  if (::fcntl(fd, F_OFD_SETLK, &lock) == 0) return 0;
  if (is_unknown(errno)) return ::flock(fd, LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
  return errno == EACCES ? EAGAIN : errno;
}

Result<bool> is_claimed(int fd) noexcept {
  struct flock lock = whole_file();
  if (::fcntl(fd, F_OFD_GETLK, &lock) == 0) return {lock.l_type != F_UNLCK, 0};
  if (!is_unknown(errno)) return {false, errno};
  if (::flock(fd, LOCK_SH | LOCK_NB) != 0) return {errno == EAGAIN, errno == EAGAIN ? 0 : errno};
  (void)::flock(fd, LOCK_UN);
  return {false, 0};
}

// The kernel grants a write lease only if no other open file of the inode exists; mappings keep their open file. On
// overlayfs a mapping whose descriptor was closed is not seen. The lease lasts for an instant: a process that opens the
// file meanwhile waits for its end, and the kernel notifies this process by a signal, which must not be SIGIO, whose
// default ends it.
Result<bool> is_in_use(int fd) noexcept {
  if (::fcntl(fd, F_SETSIG, SIGURG) != 0) return {false, errno};
  if (::fcntl(fd, F_SETLEASE, F_WRLCK) != 0) {
    if (errno == EAGAIN) return {true, 0};
    return {false, is_unknown(errno) ? EOPNOTSUPP : errno};
  }
  (void)::fcntl(fd, F_SETLEASE, F_UNLCK);
  return {false, 0};
}

}  // namespace onecopy::os
