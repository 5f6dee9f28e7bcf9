// What lies in a store: a file that was built, or what somebody left who did not come to the end.
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
  ready,        // built, and as it was built
  building,     // claimed by a process that lives
  stale_claim,  // claimed by a process that does not
  leftover,     // a file without a description that fits it
  damaged,      // a description that cannot be read
  foreign,      // nothing of ours; never touched
};
std::string_view to_string(ArtefactState state) noexcept;

struct Artefact {
  std::string key;  // empty where it is not known
  std::filesystem::path path;
  std::uint64_t bytes = 0;
  std::int64_t created_ns = 0;    // since 1970
  std::int64_t last_used_ns = 0;  // since 1970
  std::filesystem::path source;   // what it was built from; empty: not told
  bool source_present = false;    // the source is there, and is what it was (inode, size, time of the last write)
  ArtefactState state = ArtefactState::ready;
  bool built = false;                      // by this call
  double waited = 0;                       // seconds, for others who built
  double seconds = 0;                      // of the call
  std::string reason;                      // a sentence: what happened, or what this is
  std::shared_ptr<const FileHandle> file;  // what was found or built; null in a list

  // Of that very file: what is at `path` may be removed or another one by now.
  Mapping open(const MappingOptions& options = {}) const;
};

}  // namespace onecopy
