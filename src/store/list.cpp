// The contents of a store's folder, derived from the names of the files and then from their contents.
#include <map>
#include <optional>
#include <set>
#include <span>

#include "files/writing/target.hpp"
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

constexpr std::size_t longest_key = std::size_t{1} << 16U;

using store::File;
using store::Files;

Artefact entry(const File& file, ArtefactState state, std::string reason) {
  Artefact artefact;
  artefact.path = file.path();
  artefact.state = state;
  artefact.reason = std::move(reason);
  if (const auto facts = os::facts_of_entry(file.at())) {
    artefact.bytes = facts.value.size;
    artefact.created_ns = artefact.last_used_ns = facts.value.mtime_ns;
  }
  return artefact;
}

Artefact claimed(const File& file, const store::ClaimFacts& claim) {
  const std::string builder = "process " + std::to_string(claim.holder.process);
  auto artefact = claim.held ? entry(file, ArtefactState::building, builder + " is building it")
                             : entry(file, ArtefactState::stale_claim, builder + " ended without building it");
  artefact.key = claim.holder.key;
  if (claim.held) artefact.bytes = claim.holder.bytes;
  artefact.created_ns = claim.holder.since_ns;
  return artefact;
}

// What was fetched of a file; the first line beside it is the key.
Artefact partly_fetched(const Files& files) {
  auto artefact = entry(files.partial, ArtefactState::partial, "partly fetched; the next fetch continues it");
  if (const auto facts = os::facts_of_entry(files.partial.at())) artefact.bytes = facts.value.allocated;
  if (const auto opened = os::open_no_link(files.pieces.at())) {
    std::string text(longest_key, '\0');
    const auto read = os::read_at(opened.value.get(), std::as_writable_bytes(std::span(text)), 0);
    text.resize(read ? read.value : 0);
    if (const auto end = text.find('\n'); end != std::string::npos) artefact.key = text.substr(0, end);
  }
  return artefact;
}

void add_key(std::vector<Artefact>& all, const Files& files, const std::set<std::string>& suffixes) {
  const auto has = [&](std::string_view suffix) { return suffixes.contains(std::string(suffix)); };
  std::optional<store::ClaimFacts> claim;
  try {
    claim = store::look_at_claim(files.claim);
  } catch (const OsError& error) {
    all.push_back(entry(files.claim, ArtefactState::foreign, error.reason()));
  }
  const bool held = claim && claim->held;
  std::optional<Artefact> now;
  if (has(store::artefact_suffix) || has(store::about_suffix)) now = store::settled(files);
  const bool being_flushed = held && now && now->state == ArtefactState::ready;
  if (claim && !being_flushed) all.push_back(claimed(files.claim, *claim));
  if (now && (!held || being_flushed)) all.push_back(std::move(*now));
  if (!held && (has(store::partial_suffix) || has(store::pieces_suffix))) all.push_back(partly_fetched(files));
}

// A file that a writer has not finished; it holds a lock on it as long as it lives.
Artefact unfinished(const File& file) {
  if (lock_abandoned(file.at())) return entry(file, ArtefactState::leftover, "the file's writer ended too early");
  return entry(file, ArtefactState::building, "it is being written");
}

const char* why_not_described(const File& about) {
  return os::facts_of_entry(about.at())
             ? "other users could have changed its description, or a power failure may have emptied it"
             : "its builder ended before the description was written";
}

}  // namespace

namespace store {

Artefact settled(const Files& files) {
  try {
    (void)facts_of_ours(files.artefact);  // a folder in its place is not a leftover of a builder
    const auto about = read_about(files.about);
    if (!about) return entry(files.artefact, ArtefactState::leftover, why_not_described(files.about));
    if (is_as_built(*about, files.artefact)) {
      auto artefact = described(*about, files);
      artefact.reason =
          about->boot.empty() ? "ready" : "ready, but not flushed: it is valid until the machine restarts";
      return artefact;
    }
    const bool there = static_cast<bool>(os::facts_of_entry(files.artefact.at()));
    const bool lost = !counts_in_this_boot(*about);
    const char* changed = lost ? "the machine restarted before it was flushed"
                               : "it has changed since it was built, or other users may change it";
    auto artefact =
        there ? entry(files.artefact, ArtefactState::leftover, changed)
              : entry(files.about, ArtefactState::leftover, "the description of a file that no longer exists");
    artefact.key = about->key;
    return artefact;
  } catch (const FormatError& error) {
    return entry(files.about, ArtefactState::damaged, error.what());
  } catch (const OsError& error) {  // a link, a folder, a file of another user
    const auto name = std::filesystem::path(error.path()).filename().string();
    return entry({files.artefact.folder, name}, ArtefactState::foreign, error.reason());
  }
}

std::vector<Artefact> list(const Folder& folder) {
  const auto names = os::names_in(folder.descriptor());
  if (!names) throw OsError("list", folder.path().string(), names.error);
  std::vector<Artefact> all;
  std::map<std::string, std::set<std::string>> digests;
  for (const auto& name : names.value) {
    const auto parts = parts_of(name);
    if (!parts.digest.empty()) {
      digests[parts.digest].insert(parts.suffix);
    } else if (name.starts_with(".onecopy-")) {
      all.push_back(unfinished({folder, name}));
    } else if (name != views_folder && name != holds_folder && name != servers_folder) {
      all.push_back(entry({folder, name}, ArtefactState::foreign, "not a file in the store"));
    }
  }
  for (const auto& [digest, suffixes] : digests) add_key(all, files_of(folder, digest), suffixes);
  return all;
}

}  // namespace store

std::string_view to_string(ArtefactState state) noexcept {
  switch (state) {
    case ArtefactState::ready: return "ready";
    case ArtefactState::building: return "building";
    case ArtefactState::partial: return "partial";
    case ArtefactState::stale_claim: return "stale claim";
    case ArtefactState::leftover: return "leftover";
    case ArtefactState::damaged: return "damaged";
    case ArtefactState::foreign: return "foreign";
  }
  return "unknown";
}

std::vector<Artefact> Store::list() const { return store::list(store::Folder::open(folder_, users_)); }

}  // namespace onecopy
