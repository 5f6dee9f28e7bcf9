// A copy of a file, taken now, in memory that no process can change.
#pragma once

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

// Why the times of an open file do not show each write to it, so that a snapshot of it cannot be found again by them;
// empty if they do: on the file systems of local disks that are known to date writes.
std::string why_writes_are_undated(int fd);

// Whether an open file is on a network or user-space file system.
bool is_remote(int fd);

}  // namespace onecopy
