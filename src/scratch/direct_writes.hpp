// Writing past the page cache: through a second descriptor of the same file, opened when it is first needed.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include "onecopy/base/bytes.hpp"
#include "os/os.hpp"

namespace onecopy {

// Threads: any.
class DirectWrites {
 public:
  explicit DirectWrites(int fd) noexcept : fd_(fd) {}

  // The whole pages inside a range of the file; if there are none, an empty range at its end.
  static ByteRange whole_pages(ByteRange range) noexcept;

  // Whether the file system permits it, as far as is known, and these bytes are aligned for the device.
  bool takes(Bytes pages);

  // Whole pages, to a multiple of the page size. Returns errno; EOPNOTSUPP: the file system refuses, now and later.
  int write(Bytes pages, std::uint64_t at) noexcept;

 private:
  int fd_;  // not owned
  std::once_flag opened_;
  os::Fd direct_;
  std::atomic<bool> refused_{false};
};

}  // namespace onecopy
