// An entry of a store: a built file, or the remains of a build that ended too early.
//
// An Artefact is a value; copies share the ownership of `file`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "onecopy/files/file_handle.hpp"
#include "onecopy/files/mapping.hpp"

namespace onecopy {

enum class ArtefactState : std::uint8_t {
  ready,        // built, and unchanged since
  building,     // claimed by a running process
  partial,      // fetched in part; the next fetch continues it
  stale_claim,  // claimed by a process that has ended
  leftover,     // a file without a matching description
  damaged,      // a description that cannot be read
  foreign,      // not a file of the store; never removed
};
std::string_view to_string(ArtefactState state) noexcept;

struct Artefact {
  std::string key;  // empty if it is unknown
  std::filesystem::path path;
  std::uint64_t bytes = 0;
  std::int64_t created_ns = 0;    // since 1970
  std::int64_t last_used_ns = 0;  // since 1970
  std::filesystem::path source;   // what it was built from; empty: not given
  bool source_present = false;    // the source exists and is unchanged (inode, size, time of the last write)
  ArtefactState state = ArtefactState::ready;
  bool built = false;                      // by this call
  double waited = 0;                       // seconds of waiting for another builder
  double seconds = 0;                      // of the call
  std::string reason;                      // a sentence: what happened, or what this entry is
  std::shared_ptr<const FileHandle> file;  // the file that was found or built; null in a list

  // Maps that very file, even if `path` was removed or replaced meanwhile.
  Mapping open(const MappingOptions& options = {}) const;
};

// Marks an open file as in use if it is an artefact of a store, so that prune by size keeps it as long as a descriptor
// or a mapping of this open file exists. For programs that open an artefact by its path; Artefact::file is marked.
void mark_if_artefact(int fd);

}  // namespace onecopy
