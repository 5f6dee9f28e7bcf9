// A copy of a file, taken now, in memory that no process can change.
#pragma once

#include <cstdint>
#include <string>

#include "onecopy/files/mapping.hpp"

namespace onecopy {

// Reads all bytes of an open regular file into a sealed memory file of that name, and maps it; `Mapping::descriptor()`
// can be passed to other processes. First waits for a write(2) that has begun, and writes dirty pages of the file back,
// so that every later write to it, also through a mapping that a process has now, changes the time of its last change.
// The caller has checked that so much memory may be used: Linux overcommits, and would end processes instead. Throws
// OsError: ENOTSUP where the system has no sealed memory files; DataLost where the file became shorter. With
// `drop_source`, pages of the file leave the page cache as they are copied, unless a process maps them: there is then
// one copy in memory, not two.
Mapping take_snapshot(int fd, std::string name, unsigned threads = 0, bool drop_source = false);

// Copies `size` bytes of an open file into another one, with several threads. Files of a network or user-space file
// system are read in as many requests at a time as they can use, and do not stay in the page cache. Throws OsError:
// ETIMEDOUT where a server does not answer (ONECOPY_READ_TIMEOUT); DataLost where the file became shorter.
void copy_contents(int from, int into, std::uint64_t size, const std::string& name, unsigned threads = 0);

// Why the times of an open file do not show each write to it, so that a snapshot of it cannot be found again by them;
// empty if they do: on the file systems of local disks that are known to date writes.
std::string why_writes_are_undated(int fd);

// What identifies the contents of an open file: device, inode, size in bytes, and the times of the last write and of
// the last change in ns. Of a file on a server with `ask`, as the server says now, else as the kernel has it, without
// waiting for a server. Throws OsError.
struct ContentIdentity {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::uint64_t size = 0;
  std::int64_t modified = 0;
  std::int64_t changed = 0;
};
ContentIdentity content_identity(int fd, bool ask);

// Whether an open file is on a network or user-space file system.
bool is_remote(int fd);

}  // namespace onecopy
