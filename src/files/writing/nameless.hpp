// Files without a name in a folder, which vanish with their last descriptor however their processes end; and reserving
// space for files before they are written.
#pragma once

#include <cstdint>
#include <string>

#include "os/os.hpp"

namespace onecopy {

// Where the file system has no unnamed files, it has a name during two calls, and only its owner may open it.
os::Result<os::Fd> create_nameless(int folder);
os::Result<os::Fd> create_nameless(const std::string& folder);

// Whether the file system of an open file has no disk.
bool is_in_memory(int fd) noexcept;

// Seals a file where that is possible, and exchanges the descriptor for one that cannot write: kernels before 6.7
// refuse to map what is sealed through another one. Returns errno.
int end_writing(os::Fd& memory, bool sealable);

// Reserves the first `size` bytes of a file, `at_once` in a call; returns errno. ENOSPC comes before anything is
// reserved where the file system has less free space: a reservation that fails halfway fills the disk for other
// programs meanwhile. EOPNOTSUPP: the file system cannot reserve space, and a later write may fail.
int reserve(int fd, std::uint64_t size, std::uint64_t at_once) noexcept;

// The `at_once` for memory, where a call takes as long as writing zeros.
constexpr std::uint64_t reserved_at_once = std::uint64_t{16} << 20U;

}  // namespace onecopy
