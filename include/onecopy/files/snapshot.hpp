// A copy of a file, taken now, in memory that no process can change.
#pragma once

#include <cstdint>
#include <string>

#include "onecopy/files/mapping.hpp"

namespace onecopy {

// Reads all bytes of an open regular file into a sealed memory file of that name, and maps it; `Mapping::descriptor()`
// can be passed to other processes. The bytes are those of one moment only if no process writes to the file meanwhile:
// call `why_not_identified` before, and compare `content_identity` afterwards. The caller has checked that this much
// memory may be used, because Linux overcommits and would kill processes. Throws OsError: ENOTSUP if the system has no
// sealed memory files; DataLost if the file became shorter. With `drop_source`, pages of the file leave the page cache
// as they are copied, unless a process maps them, so that memory holds one copy instead of two. With `lead`, that many
// zero bytes come first, which can align data that is unaligned in the file.
Mapping take_snapshot(int fd, std::string name, unsigned threads = 0, bool drop_source = false, std::uint64_t lead = 0);

// Copies `size` bytes of an open file into another one, from its byte `lead`, with several threads. Files of a network
// or user-space file system are read in as many requests at a time as they can use, and do not stay in the page cache.
// Throws OsError: ETIMEDOUT where a server does not answer (ONECOPY_READ_TIMEOUT); DataLost where the file became
// shorter.
void copy_contents(int from, int into, std::uint64_t size, const std::string& name, unsigned threads = 0,
                   std::uint64_t lead = 0);

// Why the contents of an open file may change, or be changing now, while its `content_identity` stays the same; empty
// if each write from now on changes it, including writes through existing mappings. This is so if no process has the
// file open for writing, on the file systems of local disks that are known to record the time of each write. Where open
// files cannot be seen (a file of another user, overlayfs, a server), dirty pages are written back first, so that the
// time of the next write through a mapping is recorded, and the file must not have been changed within the last minute.
// Moves the position of `fd`. The caller has waited until the clock has advanced since the last change.
std::string why_not_identified(int fd);

// What identifies the contents of an open file: device, inode, size in bytes, and the times of the last write and of
// the last change in ns. With `ask`, a remote file's server is asked for them; otherwise they are those that the kernel
// has, without waiting for a server. Throws OsError.
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

// Whether the contents of an open file may belong to a file of another file system, which others can change: on
// overlayfs, and on unknown file systems.
bool is_stacked(int fd);

}  // namespace onecopy
