// The pages of a scratch file in memory: counts them, evicts them, and keeps them below a cap.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "files/fork_mutex.hpp"
#include "onecopy/base/bytes.hpp"
#include "os/os.hpp"
#include "page_cache/observe.hpp"
#include "scratch/write_queue.hpp"

namespace onecopy {

// Data that is mapped: `memory` shows the bytes of the file from `head` on, which is a whole number of pages.
struct MappedData {
  int fd = -1;
  os::MutableBytes memory;
  std::uint64_t head = 0;
  bool in_memory = false;  // no disk is behind it: nothing can be written out or dropped
};

// Ranges are bytes of the file. Threads: any.
class WrittenPages {
 public:
  WrittenPages(MappedData data, std::optional<std::uint64_t> cap);

  // The unit of writes: pieces do not cross its multiples.
  std::uint64_t piece_size() const noexcept;

  // Before a piece is written (or after, if another process wrote it): starts writing out old parts, and waits for and
  // drops the oldest where the cap requires it. Returns errno of writing out.
  int make_room(ByteRange piece);

  // Writes out, then drops from the page tables and from the page cache. Returns errno of writing out.
  int drop(ByteRange range);

  Cached cached(ByteRange range) const noexcept;

 private:
  int write_and_drop(ByteRange range) const noexcept;
  int look();
  int sweep(ByteRange range);
  std::uint64_t cached_in(ByteRange range) const noexcept;  // 0 where the kernel does not report it
  ByteRange whole() const noexcept { return {data_.head, data_.memory.size()}; }

  MappedData data_;
  ForkMutex mutex_;                    // of what follows
  std::unique_ptr<WriteQueue> queue_;  // none without a cap
  ByteRange dropped_;                  // the last ranges that drop() was asked for, as far as they continue each other
  std::uint64_t until_look_ = 0;       // bytes to be written before the page cache is queried again
};

}  // namespace onecopy
