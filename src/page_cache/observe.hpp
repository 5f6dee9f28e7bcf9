// Residency queries: each uses whichever kernel interface is truthful.
#pragma once

#include <optional>
#include <span>

#include "files/page_span.hpp"
#include "onecopy/base/bytes.hpp"
#include "onecopy/files/mapping.hpp"
#include "onecopy/page_cache/report.hpp"
#include "os/os.hpp"

namespace onecopy {

// The whole pages of the *file* that hold `range` of the mapping.
inline PageSpan file_pages(const Mapping& mapping, ByteRange range) noexcept {
  return page_span({mapping.file_offset() + range.offset, range.length}, os::page_size());
}

// The pages that hold `range` of the mapping; madvise and similar calls require the address of a whole page.
inline os::MutableBytes pages_of(const Mapping& mapping, ByteRange range) noexcept {
  const PageSpan span = file_pages(mapping, range);
  // Const is cast away for the kernel's interface; nothing here writes.
  auto* first = const_cast<std::byte*>(mapping.bytes().data()) + range.offset - span.lead;  // NOLINT
  return {first, static_cast<std::size_t>(span.lead + range.length)};
}

struct Cached {
  std::optional<std::uint64_t> bytes;
  std::optional<std::uint64_t> dirty;
  Source source = Source::unknown;
};

Cached cached(const Mapping& mapping, std::span<const ByteRange> ranges);

// As above, only if the page cache itself was queried.
std::optional<std::uint64_t> cached_bytes(const Mapping& mapping, std::span<const ByteRange> ranges);

// Whether the page cache is known to have all pages of a part of a mapping.
bool is_cached(const Mapping& mapping, ByteRange range) noexcept;

// Throws DataLost when the file no longer reaches the end of the last of these ranges, which are sorted.
void expect_bytes(const Mapping& mapping, std::span<const ByteRange> ranges, const char* operation);

std::optional<os::MappedFacts> mapped(const Mapping& mapping, std::span<const ByteRange> ranges);

// The part of `memory` that is in this process's page tables, by PAGEMAP_SCAN, or by smaps on kernels before 6.7.
os::Result<os::MappedFacts> mapped_memory(Bytes memory) noexcept;

}  // namespace onecopy
