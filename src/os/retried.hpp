// Repeats a system call that a signal interrupted. A signal without SA_RESTART, such as a profiler's timer, makes calls
// on FUSE and NFS fail with EINTR.
#pragma once

#include <cerrno>

namespace onecopy::os {

// The result of `call`, which returns a negative number and sets errno on failure.
template <class Call>
auto retried(const Call& call) noexcept {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

// 0, or errno.
template <class Call>
int error_of(const Call& call) noexcept {
  return retried(call) < 0 ? errno : 0;
}

}  // namespace onecopy::os
