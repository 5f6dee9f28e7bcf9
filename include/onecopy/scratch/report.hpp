// What a scratch file holds of the machine's memory, and what became of a release. Numbers that the kernel refuses to
// tell are empty, never zero.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "onecopy/residency/report.hpp"

namespace onecopy {

// All in bytes, in whole pages.
struct ScratchMemory {
  std::uint64_t bytes = 0;                // of the file's data
  std::optional<std::uint64_t> resident;  // in the page cache: what the machine pays
  std::optional<std::uint64_t> dirty;     // of these, not yet on the disk
  std::optional<std::uint64_t> clean;     // of these, on the disk: the kernel takes them back when memory is short
  std::optional<std::uint64_t> mapped;    // in this process's page tables
  std::optional<std::uint64_t> shared;    // of these, in other page tables as well
  std::optional<std::uint64_t> cap;       // max_resident; empty: none
  std::optional<std::uint64_t> over;      // resident beyond the cap, by writes that went past it; 0 without a cap
  Source source = Source::unknown;        // who told `resident`
};

struct ReleaseReport {
  std::uint64_t bytes = 0;                       // asked for, in whole pages
  std::optional<std::uint64_t> resident_before;  // bytes
  std::optional<std::uint64_t> resident_after;   // what stayed; the reason says why
  double seconds = 0;
  std::string reason;  // a sentence
};

}  // namespace onecopy
