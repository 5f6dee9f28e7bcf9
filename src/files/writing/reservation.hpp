// Space for a file before it is written.
#pragma once

#include <cstdint>

namespace onecopy {

// Reserves the first `size` bytes of a file, `at_once` in a call; returns errno. ENOSPC comes before anything is
// reserved where the file system has less free space: a reservation that fails halfway fills the disk for other
// programs meanwhile. EOPNOTSUPP: the file system cannot promise space, and a later write may fail.
int reserve(int fd, std::uint64_t size, std::uint64_t at_once) noexcept;

// Of memory, where a call takes as long as writing zeros does.
constexpr std::uint64_t reserved_at_once = std::uint64_t{16} << 20U;

}  // namespace onecopy
