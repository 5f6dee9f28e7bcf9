#include <fcntl.h>
#include <sys/file.h>

#include "os/os.hpp"

namespace onecopy::os {
namespace {

// A whole file, of this open file description: neither of the process (F_SETLK, where closing any other descriptor of
// the file gives the lock away) nor unknown to network file systems (flock).
struct flock whole_file() noexcept {
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return lock;
}

// A sandbox that does not know these locks says so to all processes alike, and all take the older ones.
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

}  // namespace onecopy::os
