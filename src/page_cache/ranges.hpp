// Ranges of a mapping as a sorted, disjoint list of whole pages.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "onecopy/base/bytes.hpp"

namespace onecopy {

// Rounds each range outwards to pages of the file (the mapping begins at `file_offset`), cuts at the mapping's ends,
// sorts and merges. Ranges that reach past `size` are cut.
std::vector<ByteRange> whole_pages(Ranges ranges, std::uint64_t size, std::uint64_t file_offset);

// The 2 MiB blocks of the file of which at least half is requested; the ends of the mapping count as ends of blocks.
// `ranges` as whole_pages returns them. For less, a huge page reads more than it saves.
std::vector<ByteRange> huge_parts(std::span<const ByteRange> ranges, std::uint64_t size, std::uint64_t file_offset);

// The isolated ones of `ranges`: so far from the others that reading them with read-ahead would read more than 1/`part`
// of them in vain; the kernel reads `overshoot` bytes beyond a request, a third of them before it and the rest behind
// it. `ranges` as whole_pages returns them, of `size` bytes.
std::vector<ByteRange> isolated_ranges(std::span<const ByteRange> ranges, std::uint64_t size, std::uint64_t overshoot,
                                       std::uint64_t part);

std::uint64_t total_length(std::span<const ByteRange> ranges) noexcept;

}  // namespace onecopy
