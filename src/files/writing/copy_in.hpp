// Filling a private block from a file as fast as the device gives: the copying half of Mapping.
#pragma once

#include <cstdint>
#include <string>

#include "os/os.hpp"

namespace onecopy {

struct CopyOptions {
  const std::string& path;  // for errors
  unsigned threads = 0;     // 0: chosen
};

// Fills `into` with the file's bytes from `offset` on. What the page cache has is copied from it. The rest is read
// through it, so that processes that copy side by side read a device once; a file that is large for the available
// memory is read past it (O_DIRECT), or leaves it again. Throws OsError (ETIMEDOUT: a server that does not answer), or
// DataLost when the file ends early. `left` becomes true where threads still wait for such a server: they may write to
// `into` at any time, which has to stay reserved for ever.
void copy_in(int fd, os::MutableBytes into, std::uint64_t offset, const CopyOptions& options, bool& left);

}  // namespace onecopy
