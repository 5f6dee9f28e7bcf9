// Page arithmetic as pure functions, so that tests can try 64 KiB pages and offsets near 2^64.
#pragma once

#include <cstdint>

#include "base/rounding.hpp"
#include "onecopy/base/bytes.hpp"

namespace onecopy {

// Where a range of a file lies in whole pages: map `length` bytes at `offset`, the range begins `lead` bytes in.
struct PageSpan {
  std::uint64_t offset;
  std::uint64_t length;
  std::uint64_t lead;
};

// `range` lies inside a file whose size is at most 2^63 - 1 (the system's own limit), `page` is a power of two: with
// both, no sum here can wrap.
constexpr PageSpan page_span(ByteRange range, std::uint64_t page) noexcept {
  const std::uint64_t lead = range.offset & (page - 1);
  const std::uint64_t length = round_up(lead + range.length, page);
  return {range.offset - lead, length, lead};
}

// Bytes between the end of the range and the end of its last page.
constexpr std::uint64_t slack_after(ByteRange range, std::uint64_t page) noexcept {
  const PageSpan span = page_span(range, page);
  return span.length - span.lead - range.length;
}

// The first address at or after `from` that equals `offset` modulo `modulus`, a power of two.
constexpr std::uint64_t congruent_after(std::uint64_t from, std::uint64_t offset, std::uint64_t modulus) noexcept {
  return from + ((offset - from) & (modulus - 1));
}

}  // namespace onecopy
