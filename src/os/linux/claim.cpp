#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <utility>

#include "os/os.hpp"

namespace onecopy::os {

namespace {

// A lock of the whole file, owned by this open file description: not by the process (F_SETLK, where closing any other
// descriptor of the file releases the lock), and supported by network file systems (unlike flock).
struct flock whole_file(short type) noexcept {
  struct flock lock = {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  return lock;
}

// A sandbox without these locks refuses them to all processes alike, so that all use the older locks.
bool is_unknown(int error) noexcept { return error == EINVAL || error == ENOSYS; }

}  // namespace

Result<Fd> claim_name(const std::string& name) noexcept {
  Fd claim(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!claim) return {{}, EOPNOTSUPP};
  struct sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const auto size = std::min(name.size(), sizeof(address.sun_path) - 1);  // the first byte is zero: no file
  std::copy_n(name.begin(), size, address.sun_path + 1);
  const auto length = static_cast<socklen_t>(offsetof(struct sockaddr_un, sun_path) + 1 + size);
  if (::bind(claim.get(), reinterpret_cast<const struct sockaddr*>(&address), length) ==
      0)  // NOLINT(*-reinterpret-cast)
    return {std::move(claim), 0};
  return {{}, errno == EADDRINUSE ? EADDRINUSE : EOPNOTSUPP};
}
int try_claim(int fd) noexcept {
  struct flock lock = whole_file(F_WRLCK);
  if (::fcntl(fd, F_OFD_SETLK, &lock) == 0) return 0;
  if (is_unknown(errno)) return ::flock(fd, LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
  return errno == EACCES ? EAGAIN : errno;
}

Result<bool> is_claimed(int fd) noexcept {
  struct flock lock = whole_file(F_WRLCK);
  if (::fcntl(fd, F_OFD_GETLK, &lock) == 0) return {lock.l_type != F_UNLCK, 0};
  if (!is_unknown(errno)) return {false, errno};
  if (::flock(fd, LOCK_SH | LOCK_NB) != 0) return {errno == EAGAIN, errno == EAGAIN ? 0 : errno};
  (void)::flock(fd, LOCK_UN);
  return {false, 0};
}

// The lock belongs to the open file, not to a descriptor: it ends when the last descriptor and the last mapping are
// gone. On overlayfs a mapping keeps the file of the lower layer instead, so that the lock ends with the last
// descriptor.
int mark_in_use(int fd) noexcept {
  struct flock lock = whole_file(F_RDLCK);
  if (::fcntl(fd, F_OFD_SETLK, &lock) == 0) return 0;
  return is_unknown(errno) ? EOPNOTSUPP : errno;
}

Result<bool> is_in_use(int fd) noexcept {
  struct flock lock = whole_file(F_WRLCK);
  if (::fcntl(fd, F_OFD_GETLK, &lock) == 0) return {lock.l_type != F_UNLCK, 0};
  return {false, is_unknown(errno) ? EOPNOTSUPP : errno};
}

}  // namespace onecopy::os
