// Removes artefacts by age, size and source, and what dead builders left.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "onecopy/store/store.hpp"

namespace onecopy {

// What is not asked for stays, but for stale claims, leftovers and damaged descriptions, which always go.
struct PruneOptions {
  std::optional<std::chrono::nanoseconds> max_age;  // since the last use
  std::optional<std::uint64_t> max_bytes;           // of all that are ready: those used longest ago go first
  bool missing_source = false;                      // those whose source is gone, or is another file by now
  std::vector<std::string> keys;
  bool everything = false;
  bool dry_run = false;  // tells, and removes nothing
};

struct PruneReport {
  std::vector<Artefact> removed;  // `reason`: why
  std::vector<Artefact> kept;     // asked for, but in use by a builder or used meanwhile; `reason` says which
  std::uint64_t bytes = 0;        // of what was removed
};

// What is being built is never touched, and what is mapped stays with those who map it. Throws OsError.
PruneReport prune(const Store& store, const PruneOptions& options);

}  // namespace onecopy
