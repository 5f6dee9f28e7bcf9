#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
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

class AbstractName {
 public:
  explicit AbstractName(const std::string& name) noexcept
      : length_(std::min(name.size(), sizeof(address_.sun_path) - 1)) {
    address_.sun_family = AF_UNIX;
    std::copy_n(name.begin(), length_, address_.sun_path + 1);  // the first byte is zero: no file
  }

  const struct sockaddr* get() const noexcept {
    return reinterpret_cast<const struct sockaddr*>(&address_);  // NOLINT(*-reinterpret-cast)
  }
  socklen_t size() const noexcept {
    return static_cast<socklen_t>(offsetof(struct sockaddr_un, sun_path) + 1 + length_);
  }

 private:
  struct sockaddr_un address_{};
  std::size_t length_;
};

}  // namespace

Result<Fd> claim_name(const std::string& name) noexcept {
  Fd claim(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!claim) return {{}, EOPNOTSUPP};
  const AbstractName address(name);
  if (::bind(claim.get(), address.get(), address.size()) != 0)
    return {{}, errno == EADDRINUSE ? EADDRINUSE : EOPNOTSUPP};
  (void)::listen(claim.get(), SOMAXCONN);
  return {std::move(claim), 0};
}

void wait_for_name(const std::string& name, std::chrono::milliseconds at_most) noexcept {
  const Fd waiting(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const AbstractName address(name);
  const bool connected = waiting && ::connect(waiting.get(), address.get(), address.size()) == 0;
  const bool refused = waiting && !connected && errno == ECONNREFUSED;  // released already, or about to listen
  // The holder accepts no connection: the kernel hangs up when the holder closes its socket or ends.
  struct pollfd hung_up{.fd = connected ? waiting.get() : -1, .events = 0, .revents = 0};
  (void)::poll(&hung_up, 1, refused ? 1 : static_cast<int>(at_most.count()));
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
