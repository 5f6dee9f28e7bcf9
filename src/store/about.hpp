// The description of an artefact, in a file beside it: lines of "name length value", so that a value may be any bytes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "onecopy/files/identity.hpp"
#include "onecopy/store/artefact.hpp"
#include "store/names.hpp"

namespace onecopy::store {

struct About {
  std::string key;
  std::uint64_t bytes = 0;       // of the artefact
  std::int64_t mtime_ns = 0;     // of the artefact
  std::int64_t created_ns = 0;   // since 1970
  std::string source;            // empty: not given
  FileIdentity source_identity;  // as it was read
  std::string boot;              // valid in this boot only, because it was not flushed; empty: in all

  friend bool operator==(const About&, const About&) = default;
};

std::string to_text(const About& about);

// Throws FormatError.
About parse_about(std::string_view text);

// None if there is no description, or an empty one after a power cut. Throws OsError (a link, a file of another user)
// and FormatError, with the path.
std::optional<About> read_about(const File& file);

// As read_about, for `key`. Throws FormatError also for another key with the same digest.
std::optional<About> read_about_of(const File& file, const std::string& key);

// Written complete or not at all; flushed, unless it is valid in this boot only. Throws OsError.
void write_about(const File& file, const About& about);

// Whether the artefact exists and is unchanged, without opening it. Throws OsError for anything else at its path.
bool is_as_built(const About& about, const File& artefact);

// The artefact, opened, if it exists and is unchanged; else nothing. Throws as is_as_built.
os::Fd open_as_built(const About& about, const File& artefact);

// Sets the time of the last use, with which `described` reports it. Refused on a read-only disk, where prune cannot run
// either.
void record_use(const Files& files) noexcept;

// As it stands in the folder; the last use is read from there.
Artefact described(const About& about, const Files& files);

// Whether the source is there, and what it was when the artefact was built. Without its device, whose number changes
// when the machine starts again.
bool is_present(const std::string& source, const FileIdentity& identity);

// The identity of a file or folder; all zeros where there is none.
FileIdentity identity_at(const std::filesystem::path& path);

}  // namespace onecopy::store
