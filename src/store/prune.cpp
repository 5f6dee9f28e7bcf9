#include "onecopy/store/prune.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include "onecopy/base/error.hpp"
#include "os/os.hpp"
#include "store/claim.hpp"
#include "store/folder.hpp"
#include "store/names.hpp"
#include "store/removal.hpp"

namespace onecopy {
namespace {

namespace fs = std::filesystem;

std::int64_t now_ns() { return std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count(); }

// Why it is to go; empty: it stays.
std::string reason_to_remove(const Artefact& artefact, const PruneOptions& options, std::int64_t now) {
  if (artefact.state != ArtefactState::ready) return artefact.reason;
  if (options.everything) return "everything was asked for";
  if (std::ranges::find(options.keys, artefact.key) != options.keys.end()) return "its key was asked for";
  if (options.max_age && now - artefact.last_used_ns > options.max_age->count()) return "not used for too long";
  if (options.missing_source && !artefact.source.empty() && !artefact.source_present)
    return "its source is gone, or has changed";
  return {};
}

// Moves from `stay` to `go` those used longest ago, until what stays is small enough.
void shrink(std::vector<Artefact>& stay, std::vector<Artefact>& go, std::uint64_t limit) {
  std::ranges::sort(stay, {}, &Artefact::last_used_ns);
  std::uint64_t total = 0;
  for (const auto& artefact : stay) total += artefact.bytes;
  auto first_kept = stay.begin();
  for (; first_kept != stay.end() && total > limit; ++first_kept) {
    total -= first_kept->bytes;
    first_kept->reason = "the store was larger than it may be, and this was used longest ago";
    go.push_back(std::move(*first_kept));
  }
  stay.erase(stay.begin(), first_kept);
}

bool remove_unfinished(const fs::path& path) {
  const auto file = os::open_no_link(path.string());
  if (!file || !os::try_lock(file.value.get())) return false;
  store::remove_if_there(path);
  return true;
}

}  // namespace

namespace store {

std::string_view remove(const Store& store, const Artefact& shown) {
  const auto digest = parts_of(shown.path.filename().string()).digest;
  if (digest.empty()) return remove_unfinished(shown.path) ? "" : "it is being written";
  const auto paths = paths_of(store.folder(), digest);
  const auto claim = Claim::take(paths.claim, shown.key);
  if (!claim) return "it is being built";
  if (shown.state == ArtefactState::stale_claim) return {};  // the claim that we took goes with us
  const auto now = settled(paths);
  if (now.state != shown.state || now.last_used_ns != shown.last_used_ns) return "it was used or built meanwhile";
  remove_if_there(paths.about);  // first: without it, the other counts as nothing
  remove_if_there(paths.artefact);
  return {};
}

}  // namespace store

PruneReport prune(const Store& store, const PruneOptions& options) {
  PruneReport report;
  std::vector<Artefact> stay;
  std::vector<Artefact> go;
  const auto now = now_ns();
  for (auto& artefact : store.list()) {
    if (artefact.state == ArtefactState::foreign || artefact.state == ArtefactState::building) continue;
    auto reason = reason_to_remove(artefact, options, now);
    auto& where = reason.empty() ? stay : go;
    if (!reason.empty()) artefact.reason = std::move(reason);
    where.push_back(std::move(artefact));
  }
  if (options.max_bytes) shrink(stay, go, *options.max_bytes);
  for (auto& artefact : go) {
    const auto obstacle = options.dry_run ? std::string_view() : onecopy::store::remove(store, artefact);
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
