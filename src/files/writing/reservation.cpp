#include "files/writing/reservation.hpp"

#include <algorithm>
#include <cerrno>

#include "os/os.hpp"

namespace onecopy {
namespace {

constexpr std::uint64_t least_at_once = std::uint64_t{64} << 10U;

}  // namespace

int reserve(int fd, std::uint64_t size, std::uint64_t at_once) noexcept {
  if (size == 0) return 0;
  const auto free = os::free_space(fd);
  if (free && free.value < size) return ENOSPC;
  for (std::uint64_t at = 0; at < size;) {
    const std::uint64_t length = std::min(at_once, size - at);
    const int error = os::reserve_space(fd, {at, length});
    if (error == EINTR && at_once > least_at_once) {
      at_once /= 2;  // in memory it begins anew: with pieces that are short enough it ends under any timer
    } else if (error == 0) {
      at += length;
    } else if (error != EINTR) {
      return error;
    }
  }
  return 0;
}

}  // namespace onecopy
