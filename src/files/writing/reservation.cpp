#include "files/writing/reservation.hpp"

#include <algorithm>
#include <cerrno>

#include "os/os.hpp"

namespace onecopy {

int reserve(int fd, std::uint64_t size, std::uint64_t at_once) noexcept {
  if (size == 0) return 0;
  const auto free = os::free_space(fd);
  if (free && free.value < size) return ENOSPC;
  int error = 0;
  for (std::uint64_t at = 0; at < size && error == 0; at += at_once)
    error = os::reserve_space(fd, {at, std::min(at_once, size - at)});
  return error;
}

}  // namespace onecopy
