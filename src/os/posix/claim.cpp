#include <sys/file.h>

#include <cerrno>
#include <chrono>

#include "os/os.hpp"

namespace onecopy::os {

int try_claim(int fd) noexcept { return ::flock(fd, LOCK_EX | LOCK_NB) == 0 ? 0 : errno; }

Result<bool> is_claimed(int fd) noexcept {
  // There is no query: a shared lock is taken for an instant, during which a claim by another process fails once.
  if (::flock(fd, LOCK_SH | LOCK_NB) != 0) return {errno == EAGAIN, errno == EAGAIN ? 0 : errno};
  (void)::flock(fd, LOCK_UN);
  return {false, 0};
}

Result<Fd> claim_name(const std::string& /*name*/) noexcept { return {{}, EOPNOTSUPP}; }

void wait_for_name(const std::string& /*name*/, std::chrono::milliseconds /*at_most*/) noexcept {}

int mark_in_use(int) noexcept { return EOPNOTSUPP; }

Result<bool> is_in_use(int) noexcept { return {false, EOPNOTSUPP}; }

}  // namespace onecopy::os
