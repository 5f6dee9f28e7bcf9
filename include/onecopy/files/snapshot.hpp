// A copy of a file, taken now, in memory that no process can change.
#pragma once

#include <cstdint>
#include <string>

#include "onecopy/files/mapping.hpp"

namespace onecopy {

// Reads all bytes of an open regular file into a sealed memory file of that name, and maps it; `Mapping::descriptor()`
// can be passed to other processes. The bytes are those that the file has at one moment only if no process writes to it
// meanwhile: ask `why_not_identified` before, and compare `content_identity` after. The caller has checked that so much
// memory may be used: Linux overcommits, and would end processes instead. Throws OsError: ENOTSUP where the system has
// no sealed memory files; DataLost where the file became shorter. With `drop_source`, pages of the file leave the page
// cache as they are copied, unless a process maps them: there is then one copy in memory, not two. With `lead`, so many
// zero bytes come first, which aligns what is not aligned in the file.
Mapping take_snapshot(int fd, std::string name, unsigned threads = 0, bool drop_source = false, std::uint64_t lead = 0);

// Copies `size` bytes of an open file into another one, from its byte `lead`, with several threads. Files of a network
// or user-space file system are read in as many requests at a time as they can use, and do not stay in the page cache.
// Throws OsError: ETIMEDOUT where a server does not answer (ONECOPY_READ_TIMEOUT); DataLost where the file became
// shorter.
void copy_contents(int from, int into, std::uint64_t size, const std::string& name, unsigned threads = 0,
                   std::uint64_t lead = 0);

// Why the contents of an open file may change, or be changing now, while its `content_identity` stays the same; empty
// if each write from now on changes it, also one through a mapping that a process has already. That holds where no
// process has the file open for writing, on the file systems of local disks that are known to date writes. Where that
// cannot be seen (a file of another user, overlayfs, a server), dirty pages are written back first, which makes the
// next write through a mapping a dated one, and the file must not have been changed within the last minute. Moves the
// position of `fd`. The caller has waited until the clock has advanced since the last change.
std::string why_not_identified(int fd);

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

// Whether the contents of an open file may belong to a file of another file system, which others can change: on
// overlayfs, and on file systems that are not known.
bool is_stacked(int fd);

}  // namespace onecopy
