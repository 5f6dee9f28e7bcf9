// store: build once per machine, map in every process.
//
//     const Store store = Store::open(default_folder(Place::disk).path);
//     const auto index = store.get_or_build("index of genome 38", [](const auto& path) { save_index(path); });
//     const auto mapping = index.open();
//
// Of all processes and threads of the machine that ask for one key, one builds; the others wait, see how far it is, and
// attach. When the builder dies, of whatever, one that waits takes its place; when it throws, each that waits tries for
// itself. There is no daemon, and a process that is killed leaves nothing that stands in anybody's way.
//
// An artefact is a file, opaque to the store. The build function is given the path at which it is to appear, whole or
// not at all (AtomicWriter does that). Beside it the store keeps `<digest>.about`: the key, the size, what it was built
// from; the time of that file is the last use. Files are replaced and removed, never edited, so that a process that has
// one mapped keeps it, whatever happens here.
//
// Who builds is decided by a lock on `<digest>.claim` that the kernel gives back when its holder dies, also where
// forked children of the holder live on. It holds within one machine: the folder is to be on a local disk or in memory.
// The folder is its owner's alone: mode 0700, no symbolic link, of this user, or it is refused. Each call opens it,
// looks at what it has opened, and works in there; what it gives is open, and of this user. Whoever may exchange the
// folder can therefore hide an artefact, and not have another file taken for it.
//
// Threads: any; a Store is a name and may be copied, forked and kept.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "onecopy/base/bytes.hpp"
#include "onecopy/store/artefact.hpp"

namespace onecopy {

// The process that a wait is for.
struct Waiting {
  std::uint64_t process = 0;  // 0: not known yet
  std::int64_t since_ns = 0;  // when it began, since 1970
  std::uint64_t bytes = 0;    // that it says are there (report_progress)
  double seconds = 0;         // waited so far
};

struct BuildOptions {
  std::filesystem::path source;                       // what it is built from: recorded, and checked by list and prune
  std::function<void(const Waiting&)> on_wait;        // called a few to 100 ms apart; throws to give up
  std::optional<std::chrono::milliseconds> patience;  // to wait for others; none: as long as one of them lives
  // False: `build` may leave its file unflushed, and nobody waits for the disk. The artefact then counts until the
  // machine starts again, or for good from the first use on that is half a minute later. Where the kernel does not tell
  // one start from another, or a server has the folder, it is flushed as ever.
  bool durable = true;
};

using Build = std::function<void(const std::filesystem::path&)>;

class Store {
 public:
  // Makes the folder, and those above it, where they are missing. Throws OsError (it belongs to somebody else, others
  // may enter it, it is a symbolic link).
  static Store open(const std::filesystem::path& folder);

  const std::filesystem::path& folder() const& noexcept ONECOPY_LIFETIMEBOUND { return folder_; }
  const std::filesystem::path& folder() const&& = delete;

  // Where the artefact of a key is, or would be.
  std::filesystem::path path(const std::string& key) const;

  // The artefact of a key, if it is there and as it was built; marks the use. Throws OsError and FormatError for what
  // stands in its place.
  std::optional<Artefact> find(const std::string& key) const;

  // Throws what `build` throws; OsError ETIMEDOUT when patience ends, EDEADLK when a build asks for what it builds;
  // FileChanged when the source changed while it was read.
  Artefact get_or_build(const std::string& key, const Build& build, const BuildOptions& options = {}) const;

  // Everything in the folder, what is being built and what dead builders left included.
  std::vector<Artefact> list() const;

 private:
  explicit Store(std::filesystem::path folder) : folder_(std::move(folder)) {}

  std::filesystem::path folder_;
};

// What names an artefact's files: 128 bits of the key, in 32 hexadecimal digits. Not for secrets (FNV-1a).
std::string digest(std::string_view key);

// For build functions: how many bytes are there, for those who wait. Of the innermost build of this thread; nothing
// happens where there is none. Also in a child that the build function forked.
void report_progress(std::uint64_t bytes) noexcept;

}  // namespace onecopy
