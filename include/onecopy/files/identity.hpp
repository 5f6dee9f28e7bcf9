// Which file this is, so that a reader can tell when a path leads to another one.
#pragma once

#include <cstdint>

namespace onecopy {

// Equal identities: the same file, unchanged since, as far as the file system tells (device, inode, size in bytes,
// time of the last write in ns since 1970). A write that keeps the size within one clock tick is not seen.
struct FileIdentity {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::uint64_t size = 0;
  std::int64_t mtime_ns = 0;

  friend bool operator==(const FileIdentity&, const FileIdentity&) = default;
};

}  // namespace onecopy
