// The parts of a file that were written last, and which of them must leave memory so that the next write stays within
// the cap. Pure: it makes no system calls, it only decides.
#pragma once

#include <cstdint>
#include <list>
#include <optional>
#include <unordered_map>

#include "onecopy/base/bytes.hpp"

namespace onecopy {

// Parts are cut at multiples of part_size() of the file. A part that is written again moves to the end of the queue.
class WriteQueue {
 public:
  explicit WriteQueue(std::uint64_t cap) noexcept;

  std::uint64_t cap() const noexcept { return cap_; }
  std::uint64_t part_size() const noexcept { return part_size_; }  // bytes, a power of two; at least 8 fit the cap
  std::uint64_t held() const noexcept { return held_; }            // bytes that are supposed to be in memory
  bool holds(std::uint64_t part) const { return places_.contains(part); }

  // The range, in whole pages of 4 KiB or more, lies in one part.
  void touch(ByteRange range);

  // The next part to start writing out; there is one while more than half of the cap waits.
  std::optional<std::uint64_t> next_to_begin();

  // The next part to write out and drop; there is one while the held bytes and the other resident bytes exceed the cap.
  std::optional<std::uint64_t> next_to_drop();

  void set_besides(std::uint64_t bytes) noexcept { besides_ = bytes; }  // resident, and not of this queue

  // The part has left memory.
  void forget(std::uint64_t part);

  ByteRange range_of(std::uint64_t part) const noexcept { return {part * part_size_, part_size_}; }

 private:
  struct Part {
    std::uint64_t number;
    std::uint64_t bytes;  // written, at most the part's size: pages that are written twice may count twice
    bool begun;
  };
  using Parts = std::list<Part>;

  std::uint64_t cap_;
  std::uint64_t part_size_;
  std::uint64_t held_ = 0;
  std::uint64_t besides_ = 0;
  std::uint64_t waiting_bytes_ = 0;  // of those in waiting_
  Parts waiting_;                    // oldest first; the device does not know of them yet
  Parts begun_;                      // oldest first; these are older than all in waiting_
  std::unordered_map<std::uint64_t, Parts::iterator> places_;
};

}  // namespace onecopy
