#include "files/writing/nameless.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <random>
#include <utility>

namespace onecopy {

os::Result<os::Fd> create_nameless(int folder) {
  auto unnamed = os::create_unnamed(folder);
  if (unnamed.error != EOPNOTSUPP) return unnamed;
  std::random_device random;
  for (;;) {
    std::array<char, 32> name{};
    std::snprintf(name.data(), name.size(), ".onecopy-%08x%08x", random(), random());
    auto named = os::create_named({folder, name.data()});
    if (named.error == EEXIST) continue;
    if (named) (void)os::remove_file({folder, name.data()});
    return named;
  }
}

os::Result<os::Fd> create_nameless(const std::string& folder) {
  const auto opened = os::open_folder(folder);
  return opened ? create_nameless(opened.value.get()) : os::Result<os::Fd>{{}, opened.error};
}

bool is_in_memory(int fd) noexcept {
  const auto system = os::file_system_of(fd);
  return system && system.value.storage == os::Storage::memory;
}

int end_writing(os::Fd& memory, bool sealable) {
  if (const int error = sealable ? os::seal(memory.get()) : 0; error != 0) return error;
  if (auto reader = os::reopen_read(memory.get())) memory = std::move(reader.value);
  return 0;
}

int reserve(int fd, std::uint64_t size, std::uint64_t at_once) noexcept {
  constexpr std::uint64_t least_at_once = std::uint64_t{64} << 10U;
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
