// The memory that a scratch file consumes, and the result of a release. Numbers that the kernel does not report are
// empty, never zero.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "onecopy/page_cache/report.hpp"

namespace onecopy {

// All in bytes, in whole pages.
struct ScratchMemory {
  std::uint64_t bytes = 0;                // of the file's data
  std::optional<std::uint64_t> resident;  // in the page cache: the machine's memory in use
  std::optional<std::uint64_t> dirty;     // resident, and not yet written to the disk
  std::optional<std::uint64_t> clean;   // resident and written to the disk: the kernel evicts them when memory is short
  std::optional<std::uint64_t> mapped;  // in this process's page tables
  std::optional<std::uint64_t> shared;  // mapped here, and in other page tables as well
  std::optional<std::uint64_t> cap;     // max_resident; empty: none
  std::optional<std::uint64_t> over;    // resident beyond the cap, by writes through bytes(); 0 without a cap
  Source source = Source::unknown;      // the source of `resident`
};

struct ReleaseReport {
  std::uint64_t bytes = 0;                       // requested, in whole pages
  std::optional<std::uint64_t> resident_before;  // bytes
  std::optional<std::uint64_t> resident_after;   // not evicted; the reason says why
  double seconds = 0;
  std::string reason;  // a sentence
};

}  // namespace onecopy
