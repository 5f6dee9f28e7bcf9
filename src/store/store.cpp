#include "onecopy/store/store.hpp"

#include <algorithm>
#include <cstdio>
#include <thread>
#include <utility>

#include "base/clock.hpp"
#include "onecopy/base/error.hpp"
#include "onecopy/store/builder_process.hpp"
#include "os/os.hpp"
#include "store/about.hpp"
#include "store/boots.hpp"
#include "store/claim.hpp"
#include "store/names.hpp"

namespace onecopy {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using store::About;
using store::Claim;
using store::Files;
using store::Folder;
using Clock = std::chrono::steady_clock;

std::string in_seconds(double seconds) {
  std::string text(32, '\0');
  text.resize(static_cast<std::size_t>(std::snprintf(text.data(), text.size(), "%.3g s", seconds)));
  return text;
}

// Marked, so that prune sees the artefact in use. Where the system has no such mark, nothing is in use.
Artefact opened(Artefact artefact, os::Fd fd) {
  (void)os::mark_in_use(fd.get());
  artefact.file = std::make_shared<const FileHandle>(fd.release());
  return artefact;
}

// None: there is no unchanged artefact. A file that was changed since it was built counts as none, and is replaced.
std::optional<Artefact> attach(const Files& files, const std::string& key) {
  const auto about = store::read_about_of(files.about, key);
  if (!about) return std::nullopt;
  auto fd = store::open_as_built(*about, files.artefact);
  if (!fd || (files.about.folder.is_own() && !store::settle_if_old(files, *about, fd))) return std::nullopt;
  store::record_use(files);
  return opened(store::described(*about, files), std::move(fd));
}

// One wait for the process that holds the claim of a key.
class Patience {
 public:
  explicit Patience(const BuildOptions& options) : options_(options) {}
  Patience(const Patience&) = delete;
  Patience& operator=(const Patience&) = delete;
  ~Patience() {
    if (waited_) store::tell_wait({});
  }

  // Reports the awaited process, and pauses. Throws what on_wait throws, and OsError ETIMEDOUT and EDEADLK.
  void look_and_pause(const Files& files) {
    const auto claim = store::look_at_claim(files.claim);
    if (!claim) return;  // released a moment ago
    waited_ = true;
    store::tell_wait(store::parts_of(files.claim.name).digest);
    if (store::waits_for_us(files.claim.folder, claim->holder))
      store::fail(files.artefact, "wait for", EDEADLK,
                  concat("process ", claim->holder.process,
                         ", which builds it, waits for an artefact that this process is building"));
    if (claim->holder.process != 0) builder_ = claim->holder.process;
    const Waiting waiting{builder_, claim->holder.since_ns, claim->holder.bytes, seconds_since(start_)};
    if (options_.on_wait) options_.on_wait(waiting);
    const auto left = options_.patience ? *options_.patience - std::chrono::floor<milliseconds>(Clock::now() - start_)
                                        : milliseconds::max();
    if (left <= milliseconds(0)) give_up(files, waiting);
    std::this_thread::sleep_for(std::min(pause_, left));
    pause_ = std::min(pause_ * 3 / 2, longest_pause);
  }

  bool waited() const noexcept { return waited_; }
  double seconds() const { return seconds_since(start_); }
  std::string builder() const { return builder_ == 0 ? "another process" : "process " + std::to_string(builder_); }

 private:
  static constexpr milliseconds first_pause{2};
  static constexpr milliseconds longest_pause{100};

  [[noreturn]] void give_up(const Files& files, const Waiting& waiting) const {
    store::fail(files.artefact, "wait for", ETIMEDOUT,
                concat(builder(), " is still building it after ", in_seconds(waiting.seconds), " of waiting (",
                       waiting.bytes, " bytes so far)"));
  }

  const BuildOptions& options_;
  Clock::time_point start_ = Clock::now();
  milliseconds pause_ = first_pause;
  bool waited_ = false;
  std::uint64_t builder_ = 0;
};

void expect_unchanged(const BuildOptions& options, const FileIdentity& before) {
  if (options.source.empty() || store::identity_at(options.source) == before) return;
  throw FileChanged("build from", options.source.string(), ESTALE, "the source changed during the build");
}

// The built file, opened; only its owner may write it, and it is on the disk if that was asked for.
os::Fd open_built(const Files& files, const std::string& boot) {
  if (!store::facts_of_ours(files.artefact))
    store::fail(files.artefact, "build", ENOENT, "the build function returned without creating this file");
  auto fd = os::open_no_link(files.artefact.at());
  if (!fd) store::fail(files.artefact, "open", fd.error);
  const auto facts = os::facts_of(fd.value.get());
  const int error =
      facts ? os::set_permissions(fd.value.get(), (facts.value.permissions & 0700U) | files.artefact.folder.readers())
            : facts.error;
  if (error != 0) store::fail(files.artefact, "set the mode of", error);
  if (boot.empty()) store::flush_artefact(fd.value, files.artefact);
  return std::move(fd.value);
}

About about_of(const os::Fd& fd, const Files& files, const std::string& key, const BuildOptions& options,
               const FileIdentity& source, const std::string& boot) {
  const auto facts = os::facts_of(fd.get());
  if (!facts) store::fail(files.artefact, "get the attributes of", facts.error);
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return {.key = key,
          .bytes = facts.value.size,
          .mtime_ns = facts.value.mtime_ns,
          .created_ns = std::chrono::nanoseconds(now).count(),
          .source = options.source.empty() ? std::string() : fs::absolute(options.source).string(),
          .source_identity = source,
          .boot = boot};
}

// Retries if the file is replaced meanwhile, for example by a child that the build function forked.
Artefact publish(const Files& files, const std::string& key, const BuildOptions& options, const FileIdentity& source) {
  constexpr int attempts = 5;
  const auto boot = options.durable ? std::string() : store::boot_to_record(files.artefact.folder);
  for (int i = 0; i < attempts; ++i) {
    auto fd = open_built(files, boot);
    expect_unchanged(options, source);
    const auto about = about_of(fd, files, key, options, source, boot);
    store::write_about(files.about, about);
    if (!store::is_as_built(about, files.artefact)) continue;
    store::record_use(files);
    return opened(store::described(about, files), std::move(fd));
  }
  store::fail(files.artefact, "build", ESTALE, "the file changed repeatedly while it was published");
}

// Under the claim. Whatever happens, the result is a complete file or none.
Artefact build_and_publish(const Claim& claim, const Files& files, const std::string& key, const Build& build,
                           const BuildOptions& options) {
  store::remove_if_there(files.about);
  if (store::facts_of_ours(files.artefact)) store::remove_if_there(files.artefact);
  const FileIdentity source = options.source.empty() ? FileIdentity{} : store::identity_at(options.source);
  try {
    build(files.artefact.path());
    if (claim.is_inherited())
      store::fail(files.artefact, "build", ECHILD, "this process was forked while its parent was building");
    return publish(files, key, options, source);
  } catch (...) {
    if (claim.is_inherited()) throw;
    (void)os::remove_file(files.artefact.at());
    (void)os::remove_file(files.about.at());
    throw;
  }
}

// Removes the claim of a builder that was killed between its last two steps.
void remove_stale_claim(const Files& files, const std::string& key) {
  if (os::facts_of_entry(files.claim.at())) (void)Claim::take(files.claim, key);
}

Artefact attached(Artefact artefact, const Patience& patience) {
  artefact.seconds = patience.seconds();
  artefact.waited = patience.waited() ? artefact.seconds : 0;
  artefact.reason = patience.waited()
                        ? "waited " + in_seconds(artefact.waited) + " for " + patience.builder() + ", which built it"
                        : "found from an earlier build";
  return artefact;
}

Artefact built(Artefact artefact, const Patience& patience, double waited) {
  artefact.built = true;
  artefact.seconds = patience.seconds();
  artefact.waited = waited;
  artefact.reason = "built here in " + in_seconds(artefact.seconds - waited);
  if (patience.waited())
    artefact.reason +=
        ", after waiting " + in_seconds(waited) + " for " + patience.builder() + ", which ended without building it";
  return artefact;
}

}  // namespace

bool end_with_parent(std::uint64_t parent) noexcept {
  (void)os::end_with_parent();
  return os::parent_id() == parent;  // asked after: it may have ended before
}

Mapping Artefact::open(const MappingOptions& options) const {
  return file ? Mapping::from_descriptor(file->descriptor(), path.string(), options) : Mapping::open(path, options);
}

void mark_if_artefact(int fd) {
  const auto facts = os::facts_of(fd);  // first: nearly every file that is not of a store is readable by others
  if (!facts || (facts.value.permissions & 0077U) != 0) return;
  const auto name = os::name_of(fd);
  if (name && store::parts_of(name.value).suffix == store::artefact_suffix) (void)os::mark_in_use(fd);
}

Store Store::open(const fs::path& folder, const StoreUsers& users) {
  if (folder.empty()) throw OsError("use as a store", "", ENOENT);
  auto whole = fs::absolute(folder).lexically_normal();
  if (!whole.has_filename()) whole = whole.parent_path();  // "/a/b/": lstat would follow what b leads to
  if (users.shared) whole = store::choose_name(whole, users).first;
  (void)Folder::open(whole, users);
  return {std::move(whole), users};
}

fs::path Store::path(const std::string& key) const {
  return folder_ / (store::digest_of(key) + std::string(store::artefact_suffix));
}

std::optional<Artefact> Store::find(const std::string& key) const {
  const auto start = Clock::now();
  auto artefact = attach(store::files_of(Folder::open(folder_, users_), store::digest_of(key)), key);
  if (!artefact) return std::nullopt;
  artefact->seconds = seconds_since(start);
  artefact->reason = "found from an earlier build";
  return artefact;
}

Artefact Store::get_or_build(const std::string& key, const Build& build, const BuildOptions& options) const {
  const auto digest = store::digest_of(key);
  Patience patience(options);
  for (;;) {
    const auto files = store::files_of(Folder::open(folder_, users_),
                                       digest);  // opened again: the folder may have been removed meanwhile
    if (auto found = attach(files, key)) {
      remove_stale_claim(files, key);
      return attached(std::move(*found), patience);
    }
    if (Claim::is_ours(files.claim))
      store::fail(files.artefact, "build", EDEADLK, "recursive build of key '" + key + "'");
    if (const auto claim = Claim::take(files.claim, key)) {
      if (auto found = attach(files, key)) return attached(std::move(*found), patience);
      const double waited = patience.waited() ? patience.seconds() : 0;
      return built(build_and_publish(*claim, files, key, build, options), patience, waited);
    }
    patience.look_and_pause(files);
  }
}

}  // namespace onecopy
