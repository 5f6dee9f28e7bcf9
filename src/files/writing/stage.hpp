// Bytes on their way into a new file: what reaches the file begins and ends at multiples of 2 MiB, so that the page
// cache can hold it in its largest pages. What does not end there is gathered; the rest comes straight from the caller.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/rounding.hpp"
#include "onecopy/base/bytes.hpp"

namespace onecopy {

class Stage {
 public:
  static constexpr std::size_t page_size = std::size_t{2} << 20U;
  static constexpr std::size_t piece_size = std::size_t{16} << 20U;  // at most, for one call of `sink`

  explicit Stage(std::uint64_t size) { held_.reserve(std::min<std::uint64_t>(size, page_size)); }

  // sink(piece, offset) writes to the file, or throws.
  template <class Sink>
  void write(Bytes bytes, const Sink& sink) {
    while (!bytes.empty()) {
      const bool direct = held_.empty() && bytes.size() >= page_size;
      const std::size_t step = direct ? std::min(piece_size, round_down(bytes.size(), page_size))
                                      : std::min(page_size - held_.size(), bytes.size());
      const auto part = bytes.first(step);
      if (direct) {
        sink(part, passed_);
        passed_ += step;
      } else {
        held_.insert(held_.end(), part.begin(), part.end());
        if (held_.size() == page_size) flush(sink);
      }
      bytes = bytes.subspan(step);
    }
  }

  template <class Sink>
  void flush(const Sink& sink) {
    if (held_.empty()) return;
    sink(Bytes(held_), passed_);
    passed_ += held_.size();
    held_.clear();
  }

  // Replaces bytes that were written before: [offset, offset + bytes.size()) lies within written().
  template <class Sink>
  void overwrite(std::uint64_t offset, Bytes bytes, const Sink& sink) {
    const std::uint64_t first = offset < passed_ ? std::min<std::uint64_t>(bytes.size(), passed_ - offset) : 0;
    if (first != 0) sink(bytes.first(first), offset);
    const std::uint64_t into_held = offset < passed_ ? 0 : offset - passed_;
    std::ranges::copy(bytes.subspan(first), held_.begin() + static_cast<std::ptrdiff_t>(into_held));
  }

  std::uint64_t written() const noexcept { return passed_ + held_.size(); }

 private:
  std::uint64_t passed_ = 0;     // bytes in the file
  std::vector<std::byte> held_;  // less than a page
};

}  // namespace onecopy
