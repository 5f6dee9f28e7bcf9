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

  // The whole pages of a range of the file, in the middle of it; of length 0, at its end, where there are none.
  static ByteRange whole_pages(ByteRange range) noexcept;

  // Whether the file system lets us, as far as it said, and these bytes begin where a device can fetch them.
  bool takes(Bytes pages);

  // Whole pages, to a multiple of the page size. Returns errno; EOPNOTSUPP: the file system will not, now and later.
  int write(Bytes pages, std::uint64_t at) noexcept;

 private:
  int fd_;  // not ours
  std::once_flag opened_;
  os::Fd direct_;
  std::atomic<bool> refused_{false};
};

}  // namespace onecopy
