#include "onecopy/store/store.hpp"

#include <algorithm>
#include <cstdio>
#include <thread>
#include <utility>

#include "onecopy/base/error.hpp"
#include "onecopy/store/builder_process.hpp"
#include "os/os.hpp"
#include "store/about.hpp"
#include "store/boots.hpp"
#include "store/claim.hpp"
#include "store/folder.hpp"
#include "store/names.hpp"

namespace onecopy {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using store::About;
using store::Claim;
using store::Paths;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

std::string in_seconds(double seconds) {
  std::string text(32, '\0');
  text.resize(static_cast<std::size_t>(std::snprintf(text.data(), text.size(), "%.3g s", seconds)));
  return text;
}

// None: there is no artefact that is as it was built. A file that was changed since counts as none, and is replaced.
std::optional<Artefact> attach(const Paths& paths, const std::string& key) {
  const auto about = store::read_about_of(paths.about, key);
  if (!about) return std::nullopt;
  if (!store::fits(*about, paths.artefact)) return std::nullopt;
  if (!store::settle_if_old(paths, *about)) return std::nullopt;
  (void)os::set_times_now(paths.about.string());  // refused on a read-only disk, where nobody prunes either
  return store::described(*about, paths);
}

// One wait for whoever holds the claim of a key.
class Patience {
 public:
  Patience(const Paths& paths, const BuildOptions& options) : paths_(paths), options_(options) {}

  // Tells who is waited for, and pauses. Throws what on_wait throws, and OsError ETIMEDOUT.
  void look_and_pause() {
    const auto claim = store::look_at_claim(paths_.claim);
    if (!claim) return;  // released a moment ago
    waited_ = true;
    if (claim->holder.process != 0) builder_ = claim->holder.process;
    const Waiting waiting{builder_, claim->holder.since_ns, claim->holder.bytes, seconds_since(start_)};
    if (options_.on_wait) options_.on_wait(waiting);
    const auto left = options_.patience ? *options_.patience - std::chrono::floor<milliseconds>(Clock::now() - start_)
                                        : milliseconds::max();
    if (left <= milliseconds(0)) give_up(waiting);
    std::this_thread::sleep_for(std::min(pause_, left));
    pause_ = std::min(pause_ * 3 / 2, longest_pause);
  }

  bool waited() const noexcept { return waited_; }
  double seconds() const { return seconds_since(start_); }
  std::string builder() const { return builder_ == 0 ? "another process" : "process " + std::to_string(builder_); }

 private:
  static constexpr milliseconds first_pause{2};
  static constexpr milliseconds longest_pause{100};

  [[noreturn]] void give_up(const Waiting& waiting) const {
    throw OsError("wait for", paths_.artefact.string(), ETIMEDOUT,
                  builder() + " is still building it after " + in_seconds(waiting.seconds) + " of waiting (" +
                      std::to_string(waiting.bytes) + " bytes so far)");
  }

  const Paths& paths_;
  const BuildOptions& options_;
  Clock::time_point start_ = Clock::now();
  milliseconds pause_ = first_pause;
  bool waited_ = false;
  std::uint64_t builder_ = 0;
};

void expect_unchanged(const BuildOptions& options, const FileIdentity& before) {
  if (options.source.empty() || store::identity_at(options.source) == before) return;
  throw FileChanged("build from", options.source.string(), ESTALE, "it was changed while it was being read");
}

About publish(const Paths& paths, const std::string& key, const BuildOptions& options, const FileIdentity& source) {
  const auto facts = store::facts_of_ours(paths.artefact);
  if (!facts) throw OsError("build", paths.artefact.string(), ENOENT, "the build function returned without this file");
  expect_unchanged(options, source);
  const auto boot = options.durable ? std::string() : store::boot_to_record(paths.artefact.parent_path());
  if (!options.durable && boot.empty()) store::flush_artefact(paths);
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  About about{.key = key,
              .bytes = facts.value.size,
              .mtime_ns = facts.value.mtime_ns,
              .created_ns = std::chrono::nanoseconds(now).count(),
              .source = options.source.empty() ? std::string() : fs::absolute(options.source).string(),
              .source_identity = source,
              .boot = boot};
  store::write_about(paths.about, about);
  return about;
}

// Under the claim. Whatever happens, what is left is whole or nothing.
About build_and_publish(const Claim& claim, const Paths& paths, const std::string& key, const Build& build,
                        const BuildOptions& options) {
  store::remove_if_there(paths.about);
  if (store::facts_of_ours(paths.artefact)) store::remove_if_there(paths.artefact);
  const FileIdentity source = options.source.empty() ? FileIdentity{} : store::identity_at(options.source);
  try {
    build(paths.artefact);
    if (claim.is_inherited())
      throw OsError("build", paths.artefact.string(), ECHILD, "this process was forked while its parent built it");
    return publish(paths, key, options, source);
  } catch (...) {
    if (claim.is_inherited()) throw;
    (void)os::remove_file(paths.artefact.string());
    (void)os::remove_file(paths.about.string());
    throw;
  }
}

// Of a builder that was killed between its last two steps.
void remove_stale_claim(const Paths& paths, const std::string& key) {
  if (os::facts_of_entry(paths.claim.string())) (void)Claim::take(paths.claim, key);
}

Artefact attached(Artefact artefact, const Patience& patience) {
  artefact.seconds = patience.seconds();
  artefact.waited = patience.waited() ? artefact.seconds : 0;
  artefact.reason = patience.waited()
                        ? "waited " + in_seconds(artefact.waited) + " for " + patience.builder() + ", which built it"
                        : "attached to what was built before";
  return artefact;
}

Artefact built(const About& about, const Paths& paths, const Patience& patience, double waited) {
  auto artefact = store::described(about, paths);
  artefact.built = true;
  artefact.seconds = patience.seconds();
  artefact.waited = waited;
  artefact.reason = "built here in " + in_seconds(artefact.seconds - waited);
  if (patience.waited())
    artefact.reason +=
        ", after waiting " + in_seconds(waited) + " for " + patience.builder() + ", which ended without it";
  return artefact;
}

}  // namespace

bool end_with_parent(std::uint64_t parent) noexcept {
  (void)os::end_with_parent();
  return os::parent_id() == parent;  // asked after: it may have ended before
}

Store Store::open(const fs::path& folder) {
  if (folder.empty()) throw OsError("use as a store", "", ENOENT);
  auto whole = fs::absolute(folder).lexically_normal();
  if (!whole.has_filename()) whole = whole.parent_path();  // "/a/b/": lstat would follow what b leads to
  store::prepare_folder(whole);
  return Store(std::move(whole));
}

fs::path Store::path(const std::string& key) const { return store::paths_of(folder_, store::digest_of(key)).artefact; }

std::optional<Artefact> Store::find(const std::string& key) const {
  const auto start = Clock::now();
  auto artefact = attach(store::paths_of(folder_, store::digest_of(key)), key);
  if (!artefact) return std::nullopt;
  artefact->seconds = seconds_since(start);
  artefact->reason = "attached to what was built before";
  return artefact;
}

Artefact Store::get_or_build(const std::string& key, const Build& build, const BuildOptions& options) const {
  const Paths paths = store::paths_of(folder_, store::digest_of(key));
  Patience patience(paths, options);
  for (;;) {
    if (auto found = attach(paths, key)) {
      remove_stale_claim(paths, key);
      return attached(std::move(*found), patience);
    }
    if (Claim::is_ours(paths.claim))
      throw OsError("build", paths.artefact.string(), EDEADLK, "its build asks for '" + key + "', which is itself");
    store::prepare_folder(folder_);  // somebody may have removed it
    if (const auto claim = Claim::take(paths.claim, key)) {
      if (auto found = attach(paths, key)) return attached(std::move(*found), patience);
      const double waited = patience.waited() ? patience.seconds() : 0;
      return built(build_and_publish(*claim, paths, key, build, options), paths, patience, waited);
    }
    patience.look_and_pause();
  }
}

}  // namespace onecopy
