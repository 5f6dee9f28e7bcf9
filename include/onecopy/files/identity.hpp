// The identity of a file, with which a reader detects that a path leads to a different file.
#pragma once

#include <cstdint>

namespace onecopy {

// Equal identities: the same file, unchanged since, as far as the file system records it (device, inode, size in bytes,
// time of the last write in ns since 1970). A write that keeps the size within one clock tick is not detected.
struct FileIdentity {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::uint64_t size = 0;
  std::int64_t mtime_ns = 0;

  friend bool operator==(const FileIdentity&, const FileIdentity&) = default;
};

}  // namespace onecopy
