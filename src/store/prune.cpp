#include "onecopy/store/prune.hpp"

#include <algorithm>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include "base/clock.hpp"
#include "files/writing/target.hpp"
#include "onecopy/base/error.hpp"
#include "onecopy/base/interrupt.hpp"
#include "os/os.hpp"
#include "store/claim.hpp"
#include "store/folder.hpp"
#include "store/names.hpp"
#include "store/removal.hpp"

namespace onecopy {
namespace {

// The reason to remove an artefact; empty: keep it.
std::string reason_to_remove(const Artefact& artefact, const PruneOptions& options, std::int64_t now) {
  if (artefact.state != ArtefactState::ready && artefact.state != ArtefactState::partial) return artefact.reason;
  if (options.everything) return "everything was selected";
  if (std::ranges::find(options.keys, artefact.key) != options.keys.end()) return "its key was selected";
  if (options.max_age && now - artefact.last_used_ns > options.max_age->count()) return "not used for too long";
  if (options.missing_source && !artefact.source.empty() && !artefact.source_present)
    return "its source is missing or has changed";
  return {};
}

bool is_in_use(const store::Folder& folder, const Artefact& artefact) {
  const auto opened = os::open_no_link(store::File{folder, artefact.path.filename().string()}.at());
  if (!opened) return false;  // removed meanwhile
  const auto used = os::is_in_use(opened.value.get());
  return used && used.value;
}

// One process at a time selects by size: two that remove beside each other list what the other one is about to remove.
// None: the folder cannot be locked (NFS), or the process with the claim does not continue (it may be stopped).
std::optional<store::Claim> claim_prune(const store::Folder& folder) {
  constexpr std::chrono::seconds patience{5};
  constexpr std::chrono::milliseconds pause{2};
  const auto end = std::chrono::steady_clock::now() + patience;
  try {
    do {
      if (auto claim = store::Claim::take(folder)) return claim;
      poll_interrupt();
      std::this_thread::sleep_for(pause);
    } while (std::chrono::steady_clock::now() < end);
  } catch (const OsError&) {
  }
  return std::nullopt;
}

// Appends the least recently used artefacts to `go` until the rest is small enough, and those in use to `kept`.
void shrink(const store::Folder& folder, std::vector<Artefact>& stay, std::uint64_t limit, std::vector<Artefact>& go,
            std::vector<Artefact>& kept) {
  std::ranges::sort(stay, {}, &Artefact::last_used_ns);
  std::uint64_t total = 0;
  for (const auto& artefact : stay) total += artefact.bytes;
  for (auto& artefact : stay) {
    if (total <= limit) return;
    const bool used = is_in_use(folder, artefact);
    if (!used) total -= artefact.bytes;
    artefact.reason = used ? "a process has it open"
                           : "the store exceeded its maximum size, and this was the least recently used artefact";
    (used ? kept : go).push_back(std::move(artefact));
  }
}

bool remove_unfinished(const store::File& file) {
  const auto locked = lock_abandoned(file.at());
  if (!locked) return false;
  store::remove_if_there(file);
  return true;
}

// Empty if it was removed.
std::string why_not_removed(const store::Folder& folder, const Artefact& shown) {
  try {
    return std::string(store::remove(folder, shown));
  } catch (const OsError& error) {
    return error.what();
  }
}

}  // namespace

namespace store {

std::string_view remove(const Folder& folder, const Artefact& shown) {
  const auto name = shown.path.filename().string();
  const auto digest = parts_of(name).digest;
  if (digest.empty()) return remove_unfinished({folder, name}) ? "" : "it is being written";
  const auto files = files_of(folder, digest);
  const auto claim = Claim::take(files.claim, shown.key);
  if (!claim) return "it is being built";
  if (shown.state == ArtefactState::stale_claim) return {};  // releasing the claim that we took removes it
  if (shown.state == ArtefactState::partial) {
    const auto facts = os::facts_of_entry(files.partial.at());
    if (facts && facts.value.mtime_ns != shown.last_used_ns) return "it was used or built in the meantime";
    remove_if_there(files.pieces);  // first: without it, the other counts as nothing
    remove_if_there(files.partial);
    return {};
  }
  const auto now = settled(files);
  if (now.state != shown.state || now.last_used_ns != shown.last_used_ns) return "it was used or built in the meantime";
  remove_if_there(files.about);  // first: without it, the other counts as nothing
  remove_if_there(files.artefact);
  return {};
}

}  // namespace store

PruneReport prune(const Store& store, const PruneOptions& options) {
  PruneReport report;
  std::vector<Artefact> stay;
  std::vector<Artefact> go;
  const auto now = now_ns();
  const auto folder = onecopy::store::Folder::open(store.folder(), store.users());
  const auto claim = options.max_bytes && !options.dry_run ? claim_prune(folder) : std::nullopt;
  for (auto& artefact : onecopy::store::list(folder)) {
    if (artefact.state == ArtefactState::foreign || artefact.state == ArtefactState::building) continue;
    auto reason = reason_to_remove(artefact, options, now);
    auto& where = reason.empty() ? stay : go;
    if (!reason.empty()) artefact.reason = std::move(reason);
    where.push_back(std::move(artefact));
  }
  if (options.max_bytes) shrink(folder, stay, *options.max_bytes, go, report.kept);
  for (auto& artefact : go) {
    const auto obstacle = options.dry_run ? std::string() : why_not_removed(folder, artefact);
    if (obstacle.empty()) {
      report.bytes += artefact.bytes;
      report.removed.push_back(std::move(artefact));
    } else {
      artefact.reason = obstacle;
      report.kept.push_back(std::move(artefact));
    }
  }
  return report;
}

}  // namespace onecopy
