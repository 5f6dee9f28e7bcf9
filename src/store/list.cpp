// What is in the folder of a store, told by the names of the files and then by what they hold.
#include <map>
#include <set>
#include <system_error>

#include "onecopy/base/error.hpp"
#include "onecopy/store/store.hpp"
#include "os/os.hpp"
#include "store/about.hpp"
#include "store/boots.hpp"
#include "store/claim.hpp"
#include "store/names.hpp"
#include "store/removal.hpp"

namespace onecopy {
namespace {

namespace fs = std::filesystem;
using store::Paths;

Artefact entry(const fs::path& path, ArtefactState state, std::string reason) {
  Artefact artefact;
  artefact.path = path;
  artefact.state = state;
  artefact.reason = std::move(reason);
  if (const auto facts = os::facts_of_entry(path.string())) {
    artefact.bytes = facts.value.size;
    artefact.created_ns = artefact.last_used_ns = facts.value.mtime_ns;
  }
  return artefact;
}

Artefact claimed(const fs::path& path, const store::ClaimFacts& claim) {
  const std::string builder = "process " + std::to_string(claim.holder.process);
  auto artefact = claim.held ? entry(path, ArtefactState::building, builder + " is building it")
                             : entry(path, ArtefactState::stale_claim, builder + " ended without building it");
  artefact.key = claim.holder.key;
  artefact.bytes = claim.holder.bytes;
  artefact.created_ns = claim.holder.since_ns;
  return artefact;
}

void add_key(std::vector<Artefact>& all, const Paths& paths, const std::set<std::string>& suffixes) {
  const auto has = [&](std::string_view suffix) { return suffixes.contains(std::string(suffix)); };
  try {
    const auto claim = store::look_at_claim(paths.claim);
    if (claim) all.push_back(claimed(paths.claim, *claim));
    if (claim && claim->held) return;
  } catch (const OsError& error) {
    all.push_back(entry(paths.claim, ArtefactState::foreign, error.reason()));
  }
  if (has(store::artefact_suffix) || has(store::about_suffix)) all.push_back(store::settled(paths));
}

// A file that a writer has not finished; it holds a lock on it as long as it lives.
Artefact unfinished(const fs::path& path) {
  const auto file = os::open_no_link(path.string());
  if (file && os::try_lock(file.value.get()))
    return entry(path, ArtefactState::leftover, "its writer ended before it was whole");
  return entry(path, ArtefactState::building, "it is being written");
}

}  // namespace

namespace store {

Artefact settled(const Paths& paths) {
  try {
    const auto about = read_about(paths.about);
    if (!about) return entry(paths.artefact, ArtefactState::leftover, "its builder ended before it was described");
    if (fits(*about, paths.artefact)) {
      auto artefact = described(*about, paths);
      artefact.reason =
          about->boot.empty() ? "ready" : "ready, and not flushed: it counts until the machine starts again";
      return artefact;
    }
    const bool there = static_cast<bool>(os::facts_of_entry(paths.artefact.string()));
    const bool lost = !counts_in_this_boot(*about);
    const char* changed =
        lost ? "the machine started again before it was flushed" : "it was changed since it was built";
    auto artefact = there ? entry(paths.artefact, ArtefactState::leftover, changed)
                          : entry(paths.about, ArtefactState::leftover, "the description of a file that is gone");
    artefact.key = about->key;
    return artefact;
  } catch (const FormatError& error) {
    return entry(paths.about, ArtefactState::damaged, error.what());
  } catch (const OsError& error) {  // a link, a folder, somebody else's
    return entry(error.path(), ArtefactState::foreign, error.reason());
  }
}

}  // namespace store

std::string_view to_string(ArtefactState state) noexcept {
  switch (state) {
    case ArtefactState::ready: return "ready";
    case ArtefactState::building: return "building";
    case ArtefactState::stale_claim: return "stale claim";
    case ArtefactState::leftover: return "leftover";
    case ArtefactState::damaged: return "damaged";
    case ArtefactState::foreign: return "foreign";
  }
  return "unknown";
}

std::vector<Artefact> Store::list() const {
  std::vector<Artefact> all;
  std::map<std::string, std::set<std::string>> digests;
  std::error_code error;
  for (fs::directory_iterator at(folder_, error), end; !error && at != end; at.increment(error)) {
    const auto name = at->path().filename().string();
    const auto parts = store::parts_of(name);
    if (!parts.digest.empty()) {
      digests[parts.digest].insert(parts.suffix);
    } else if (name.starts_with(".onecopy-")) {
      all.push_back(unfinished(at->path()));
    } else {
      all.push_back(entry(at->path(), ArtefactState::foreign, "not a file of the store"));
    }
  }
  if (error && error.value() != ENOENT) throw OsError("list", folder_.string(), error.value());
  for (const auto& [digest, suffixes] : digests) add_key(all, store::paths_of(folder_, digest), suffixes);
  return all;
}

}  // namespace onecopy
