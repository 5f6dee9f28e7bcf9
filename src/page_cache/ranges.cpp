#include "page_cache/ranges.hpp"

#include <algorithm>

#include "files/page_span.hpp"
#include "os/os.hpp"

namespace onecopy {

std::vector<ByteRange> whole_pages(Ranges ranges, std::uint64_t size, std::uint64_t file_offset) {
  if (!ranges) return {{0, size}};
  std::vector<ByteRange> rounded;
  for (const auto& range : *ranges) {
    if (range.offset >= size || range.length == 0) continue;
    const std::uint64_t length = std::min(range.length, size - range.offset);
    const PageSpan span = page_span({file_offset + range.offset, length}, os::page_size());
    const std::uint64_t begin = std::max(span.offset, file_offset) - file_offset;
    const std::uint64_t end = std::min(span.offset + span.length - file_offset, size);
    rounded.push_back({begin, end - begin});
  }
  std::ranges::sort(rounded, {}, &ByteRange::offset);
  std::vector<ByteRange> merged;
  for (const auto& range : rounded) {
    if (!merged.empty() && range.offset <= merged.back().offset + merged.back().length) {
      const std::uint64_t end = std::max(merged.back().offset + merged.back().length, range.offset + range.length);
      merged.back().length = end - merged.back().offset;
    } else {
      merged.push_back(range);
    }
  }
  return merged;
}

std::vector<ByteRange> huge_parts(std::span<const ByteRange> ranges, std::uint64_t size, std::uint64_t file_offset) {
  constexpr std::uint64_t block = os::huge_page;
  constexpr std::uint64_t half = block / 2;
  std::vector<ByteRange> parts;
  for (const auto& range : ranges) {
    const std::uint64_t begin = file_offset + range.offset;
    const std::uint64_t end = begin + range.length;
    const bool from_start = range.offset == 0;
    const bool to_end = range.offset + range.length == size;
    if (range.length < half && !(from_start && to_end)) continue;
    const std::uint64_t first = begin / block + (!from_start && begin % block > half ? 1 : 0);
    const std::uint64_t last = end / block + (to_end || end % block >= half ? 1 : 0);
    if (first >= last) continue;  // else a byte of the range lies in each block: what follows is not empty
    const std::uint64_t from = std::max(first * block, file_offset);
    const std::uint64_t to = std::min(last * block, file_offset + size);
    parts.push_back({from - file_offset, to - from});
  }
  return parts;
}

std::vector<ByteRange> isolated_ranges(std::span<const ByteRange> ranges, std::uint64_t size, std::uint64_t overshoot,
                                       std::uint64_t part) {
  std::vector<ByteRange> found;
  std::uint64_t before = 0;  // the end of the range before
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    const std::uint64_t end = ranges[i].offset + ranges[i].length;
    const std::uint64_t next = i + 1 < ranges.size() ? ranges[i + 1].offset : size;
    const std::uint64_t unwanted =
        std::min(ranges[i].offset - before, overshoot / 3) + std::min(next - end, overshoot - overshoot / 3);
    if (unwanted > ranges[i].length / part) found.push_back(ranges[i]);
    before = end;
  }
  return found;
}

std::uint64_t total_length(std::span<const ByteRange> ranges) noexcept {
  std::uint64_t total = 0;
  for (const auto& range : ranges) total += range.length;
  return total;
}

}  // namespace onecopy
