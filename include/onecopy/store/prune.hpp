// Removes artefacts by age, size and source, and files of abandoned builds.
//
// Threads and processes: any number at once.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "onecopy/store/store.hpp"

namespace onecopy {

// Artefacts that no option selects stay; stale claims, leftovers and damaged descriptions are always removed.
struct PruneOptions {
  std::optional<std::chrono::nanoseconds> max_age;  // since the last use
  // Of all artefacts: the least recently used are removed first, except those that a process has open or mapped through
  // Artefact or mark_if_artefact. On overlayfs a mapping counts only while its file is open; without open file
  // description locks (other systems than Linux) nothing counts.
  std::optional<std::uint64_t> max_bytes;
  bool missing_source = false;  // removes artefacts whose source is missing or has changed
  std::vector<std::string> keys;
  bool everything = false;
  bool dry_run = false;  // reports what it would remove, and removes nothing
};

struct PruneReport {
  std::vector<Artefact> removed;  // `reason`: why
  std::vector<Artefact> kept;     // selected, but in use by a process or used meanwhile; `reason` says which
  std::uint64_t bytes = 0;        // of the removed files
};

// An artefact that is being built is never removed; processes that have a removed artefact mapped keep it. Throws
// OsError.
PruneReport prune(const Store& store, const PruneOptions& options);

}  // namespace onecopy
