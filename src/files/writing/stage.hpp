// Bytes on their way into a new file: small writes are gathered, so that what reaches the file begins at multiples of
// 16 MiB and is as long.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "onecopy/base/bytes.hpp"

namespace onecopy {

class Stage {
 public:
  static constexpr std::size_t piece_size = std::size_t{16} << 20U;

  explicit Stage(std::uint64_t size) { held_.reserve(std::min<std::uint64_t>(size, piece_size)); }

  // put(piece, offset) writes to the file, or throws. A whole piece goes there straight from the caller's memory.
  template <class Put>
  void write(Bytes bytes, const Put& put) {
    while (!bytes.empty()) {
      const std::size_t step = std::min(piece_size - held_.size(), bytes.size());
      const auto part = bytes.first(step);
      if (step == piece_size) {
        put(part, passed_);
        passed_ += step;
      } else {
        held_.insert(held_.end(), part.begin(), part.end());
        if (held_.size() == piece_size) flush(put);
      }
      bytes = bytes.subspan(step);
    }
  }

  template <class Put>
  void flush(const Put& put) {
    if (held_.empty()) return;
    put(Bytes(held_), passed_);
    passed_ += held_.size();
    held_.clear();
  }

  // Replaces bytes that were written before: [offset, offset + bytes.size()) lies within written().
  template <class Put>
  void overwrite(std::uint64_t offset, Bytes bytes, const Put& put) {
    const std::uint64_t first = offset < passed_ ? std::min<std::uint64_t>(bytes.size(), passed_ - offset) : 0;
    if (first != 0) put(bytes.first(first), offset);
    const std::uint64_t into_held = offset < passed_ ? 0 : offset - passed_;
    std::ranges::copy(bytes.subspan(first), held_.begin() + static_cast<std::ptrdiff_t>(into_held));
  }

  std::uint64_t written() const noexcept { return passed_ + held_.size(); }

 private:
  std::uint64_t passed_ = 0;     // bytes in the file
  std::vector<std::byte> held_;  // never more than one piece
};

}  // namespace onecopy
