// store: build once per machine, map in every process.
//
//     const Store store = Store::open(default_folder(Place::disk).path);
//     const auto index = store.get_or_build("index of genome 38", [](const auto& path) { save_index(path); });
//     const auto mapping = index.open();
//
// Of all processes and threads of the machine that request one key, one builds; the others wait, see its progress, and
// attach. When the builder dies, one of the waiting processes takes over; when its build function throws, each waiting
// process tries to build. There is no daemon, and a killed process leaves nothing that blocks others.
//
// An artefact is a file, opaque to the store. The build function receives the path at which the file must appear,
// complete or not at all (AtomicWriter does that). Beside it the store keeps `<digest>.about`: the key, the size, what
// it was built from; the modification time of that file is the time of the last use. Files are replaced and removed,
// never edited, so a process that has one mapped keeps its contents.
//
// A lock on `<digest>.claim` decides which process builds; the kernel releases it when its holder dies, even if forked
// children of the holder live on. It works within one machine: the folder must be on a local disk or in memory. The
// folder must be private: mode 0700, no symbolic link, owned by this user; any other folder is refused. Each call opens
// the folder, checks the opened folder, and works relative to it; the files that it returns are open and owned by this
// user. A process that may replace the folder can therefore hide an artefact, but cannot substitute another file for
// it. With StoreUsers, others may read the folder, or it belongs to another user whom the caller trusts; the same
// checks hold for that user.
//
// Threads: any; a Store holds only a path and may be copied, forked and kept.
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

// The process that a caller waits for.
struct Waiting {
  std::uint64_t process = 0;  // 0: unknown yet
  std::int64_t since_ns = 0;  // when the build began, in ns since 1970
  std::uint64_t bytes = 0;    // written so far, as reported by report_progress
  double seconds = 0;         // waited so far
};

struct BuildOptions {
  std::filesystem::path source;                       // what it is built from: recorded, and checked by list and prune
  std::function<void(const Waiting&)> on_wait;        // called every few to 100 ms; an exception ends the wait
  std::optional<std::chrono::milliseconds> patience;  // limit of the wait; none: as long as a builder lives
  // False: `build` may leave its file unflushed, and no call waits for the disk. The artefact is then valid until the
  // machine restarts, or permanently from the first use at least half a minute later. Where the kernel cannot
  // distinguish restarts, or the folder is on a server, the file is flushed in any case.
  bool durable = true;
};

// Which users a folder is for. The default is this user alone.
struct StoreUsers {
  std::optional<std::uint64_t> owner;  // the user that the folder and its files must belong to; none: this one
  bool shared = false;                 // others may read the folder; none may write it
};

using Build = std::function<void(const std::filesystem::path&)>;

class Store {
 public:
  // Creates the folder and its parents if they are missing. Throws OsError (the folder belongs to another user, others
  // have access to it, it is a symbolic link). Of a folder of another user, only `find` may be called, and the folder
  // is not created.
  static Store open(const std::filesystem::path& folder, const StoreUsers& users = {});

  const std::filesystem::path& folder() const& noexcept ONECOPY_LIFETIMEBOUND { return folder_; }
  const std::filesystem::path& folder() const&& = delete;

  const StoreUsers& users() const& noexcept ONECOPY_LIFETIMEBOUND { return users_; }
  const StoreUsers& users() const&& = delete;

  // The path of the artefact of a key, whether or not it exists.
  std::filesystem::path path(const std::string& key) const;

  // The artefact of a key, if it exists and is unchanged since it was built; records the use. Throws OsError and
  // FormatError for anything else at its path.
  std::optional<Artefact> find(const std::string& key) const;

  // Throws what `build` throws; OsError ETIMEDOUT when patience ends, EDEADLK for a recursive build of the same key;
  // FileChanged when the source changed while it was read.
  Artefact get_or_build(const std::string& key, const Build& build, const BuildOptions& options = {}) const;

  // Every entry of the folder, including artefacts that are being built and files of abandoned builds.
  std::vector<Artefact> list() const;

 private:
  Store(std::filesystem::path folder, const StoreUsers& users) : folder_(std::move(folder)), users_(users) {}

  std::filesystem::path folder_;
  StoreUsers users_;
};

// For build functions: reports the number of bytes written so far to the waiting processes. Applies to the innermost
// build of this thread, also in a child that the build function forked; no effect outside a build.
void report_progress(std::uint64_t bytes) noexcept;

}  // namespace onecopy
