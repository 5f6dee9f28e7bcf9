// Reports of what the kernel did. Every number that the kernel does not report is empty, never zero.
//
// A zero always means a measured zero: a report of 0 huge pages has counted them. A sum of reports is empty if one part
// is empty, and its outcome is the worst of the parts.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "onecopy/base/outcome.hpp"

namespace onecopy {

// The interface of the kernel that reported the page cache.
enum class Source : std::uint8_t { cachestat, mincore, unknown };

constexpr std::string_view to_string(Source source) noexcept {
  switch (source) {
    case Source::cachestat: return "cachestat";
    case Source::mincore: return "mincore";
    case Source::unknown: break;
  }
  return "unknown";
}

// All in bytes, in whole pages.
struct Residency {
  std::uint64_t bytes = 0;              // of the ranges
  std::optional<std::uint64_t> cached;  // in memory, for every process
  std::optional<std::uint64_t> dirty;   // cached, and not yet written to the disk
  std::optional<std::uint64_t> mapped;  // in this process's page tables
  std::optional<std::uint64_t> huge;    // mapped in 2 MiB entries
  Source source = Source::unknown;
};

// The pages of a file in the page cache, for all processes: cachestat (Linux 6.5). In bytes, in whole pages.
struct PageCache {
  std::uint64_t cached = 0;
  std::uint64_t dirty = 0;             // cached, and not yet written to the disk
  std::uint64_t evicted = 0;           // was cached before, as far as the kernel remembers
  std::uint64_t recently_evicted = 0;  // evicted so recently that reading it again indicates a shortage of memory
};

// The pages in the page tables of a process, in bytes.
struct MappedPages {
  std::uint64_t mapped = 0;
  std::uint64_t huge = 0;  // mapped in 2 MiB entries
};

enum class Mechanism : std::uint8_t {
  none,      // nothing was done; the reason says why
  advise,    // huge pages were requested; the first access reads
  populate,  // MADV_POPULATE_READ: read and mapped in
  read,      // pread into a scratch buffer: read, not mapped in
};

constexpr std::string_view to_string(Mechanism mechanism) noexcept {
  switch (mechanism) {
    case Mechanism::none: return "none";
    case Mechanism::advise: return "advise";
    case Mechanism::populate: return "populate";
    case Mechanism::read: return "read";
  }
  return "unknown";
}

struct WarmReport {
  std::uint64_t bytes = 0;                // of the ranges, rounded outwards to whole pages
  std::uint64_t filled = 0;               // read by this call; the rest was resident before or exceeds the budget
  std::optional<std::uint64_t> verified;  // bytes whose checksums were correct; empty: not requested
  std::optional<std::uint64_t> cached_before;
  std::optional<std::uint64_t> cached_after;
  std::optional<double> huge_share;  // the part of the mapped bytes that is in 2 MiB entries: 0 to 1
  std::uint64_t minor_faults = 0;
  std::uint64_t major_faults = 0;  // faults that waited for the disk
  double seconds = 0;
  double gib_per_s = 0;  // of `filled`; 2^30 bytes
  Mechanism mechanism = Mechanism::none;
  std::optional<Outcome> huge;    // result of the request for 2 MiB pages; empty: not requested
  unsigned threads = 0;           // each has one piece in flight
  std::uint64_t piece = 0;        // bytes that a thread requested at a time; 0: nothing was read
  std::string file_system;        // "nfs"; empty: not known
  std::optional<double> latency;  // seconds until the file system answered one small read; empty: not measured
  bool complete = false;          // all bytes were in memory, or were read
  std::string reason;             // a sentence: what was chosen, and why
};

struct EvictReport {
  std::uint64_t bytes = 0;
  std::optional<std::uint64_t> cached_before;
  std::optional<std::uint64_t> cached_after;
  double seconds = 0;
  std::string reason;
};

struct CollapseReport {
  std::uint64_t bytes = 0;            // whole 2 MiB units of the ranges; the rest is unchanged
  std::optional<std::uint64_t> huge;  // in 2 MiB pages afterwards
  Outcome outcome = Outcome::unsupported;
  double seconds = 0;
  std::string reason;
};

struct PinReport {
  std::uint64_t bytes = 0;
  std::uint64_t pinned = 0;
  Outcome outcome = Outcome::unsupported;
  std::string reason;
};

// Several reports as one: sums, empty where one of them is empty; the worst outcome; every reason once. Shares are
// weighted by bytes; reports without a share are left out.
Residency total(std::span<const Residency> reports);
WarmReport total(std::span<const WarmReport> reports);
EvictReport total(std::span<const EvictReport> reports);
PinReport total(std::span<const PinReport> reports);

}  // namespace onecopy
