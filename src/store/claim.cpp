#include "store/claim.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <mutex>
#include <ranges>
#include <span>
#include <thread>
#include <vector>

#include "base/clock.hpp"
#include "files/fork_mutex.hpp"
#include "files/same_file.hpp"
#include "onecopy/base/error.hpp"
#include "onecopy/store/store.hpp"
#include "os/os.hpp"
#include "store/names.hpp"

namespace onecopy {
namespace store {

struct HeldClaim {
  File file;
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  os::Fd fd;
  std::int64_t since_ns = 0;
  std::uint64_t bytes = 0;
  std::string waits_for;
  std::thread::id thread = std::this_thread::get_id();
  std::uint64_t process = os::process_id();
};

namespace {

using HeldClaims = std::vector<std::shared_ptr<HeldClaim>>;

// Claims of this process, oldest first. In a forked child: those of the forking thread, without their descriptors.
HeldClaims& held_claims() {
  static auto& claims = *new HeldClaims;  // NOLINT: outlives threads that build while the process ends
  return claims;
}

// A child must not keep a lock that its parent's death must release. It keeps the list of what the forking thread is
// building, because requesting one of those in the child would deadlock.
void release_claims_of_parent() {
  const auto process = os::process_id();
  const auto thread = std::this_thread::get_id();
  auto& claims = held_claims();
  for (const auto& held : claims)
    if (held->process != process) held->fd = os::Fd();
  std::erase_if(claims, [&](const auto& held) { return held->process != process && held->thread != thread; });
}

// Held while a claim is opened, locked and entered, and over every fork: no descriptor escapes into a child.
ForkMutex& lock_of_claims() {
  static auto& mutex = *new ForkMutex(release_claims_of_parent);  // NOLINT: as the claims
  return mutex;
}

constexpr std::size_t facts_size = 96;  // the first line: of fixed length, so that it can be overwritten
constexpr std::size_t longest = std::size_t{1} << 16U;

std::string first_line(const HeldClaim& held) {
  std::array<char, facts_size + 1> text{};
  std::snprintf(text.data(), text.size(), "%20llu %20lld %20llu %32s\n", static_cast<unsigned long long>(held.process),
                static_cast<long long>(held.since_ns), static_cast<unsigned long long>(held.bytes),
                held.waits_for.empty() ? "-" : held.waits_for.c_str());
  return text.data();
}

// Progress for waiting processes: a full disk is no reason to stop the build.
void tell(HeldClaim& held, const std::string& key = {}) noexcept {
  try {
    // A child that builds for its parent: a descriptor of its own, which has no part in the lock.
    if (!held.fd) held.fd = std::move(os::open_existing(held.file.at()).value);
    const std::string text = first_line(held) + key;
    (void)os::write_at(held.fd.get(), std::as_bytes(std::span(text)), 0);
  } catch (const std::bad_alloc&) {  // then waiting processes see no progress
  }
}

Holder parse_holder(const std::string& text) {
  unsigned long long process = 0;
  unsigned long long bytes = 0;
  long long since = 0;
  std::array<char, digest_length + 1> digest{};
  if (text.size() < facts_size ||
      std::sscanf(text.c_str(), "%llu %lld %llu %32s", &process, &since, &bytes, digest.data()) != 4)
    return {};
  const std::string waits_for = digest.data();
  return {process, since, bytes, waits_for == "-" ? std::string() : waits_for, text.substr(facts_size)};
}

bool leads_to(const File& file, std::uint64_t device, std::uint64_t inode) {
  const auto named = os::facts_of_entry(file.at());
  return named && named.value.device == device && named.value.inode == inode;
}

Holder read_holder(const os::Fd& fd) {
  std::string text(longest, '\0');
  const auto got = os::read_at(fd.get(), std::as_writable_bytes(std::span(text)), 0);
  text.resize(got.value);
  return parse_holder(text);
}

// Also right in a forked child, whose parent may have ended, and whose file's inode may have a new owner.
bool is_held_at(const HeldClaim& held, const File& file) {
  if (held.thread != std::this_thread::get_id() || !leads_to(file, held.device, held.inode)) return false;
  if (held.process == os::process_id()) return true;
  const auto fd = os::open_no_link(file.at());
  const auto holder = fd ? read_holder(fd.value) : Holder{};
  return holder.process == held.process && holder.since_ns == held.since_ns;
}

// None: another process holds it. The locked file may have been released and removed meanwhile: then retries.
os::Fd open_and_lock(const File& file) {
  for (;;) {
    (void)facts_of_ours(file);
    auto fd = os::open_or_create(file.at());
    if (!fd) fail(file, "claim", fd.error);
    const int error = os::try_claim(fd.value.get());
    if (error == EAGAIN) return {};
    if (error != 0) fail(file, "lock", error);
    if (is_at(fd.value.get(), file.at())) return std::move(fd.value);
  }
}

}  // namespace

std::optional<Claim> Claim::take(const File& file, const std::string& key) {
  const std::scoped_lock lock(lock_of_claims());
  auto held = std::make_shared<HeldClaim>(HeldClaim{.file = file, .fd = open_and_lock(file), .waits_for = {}});
  if (!held->fd) return std::nullopt;
  const auto facts = os::facts_of(held->fd.get());
  held->device = facts.value.device;
  held->inode = facts.value.inode;
  held->since_ns = now_ns();
  tell(*held, key);
  held_claims().push_back(held);
  return Claim(std::move(held));
}

std::optional<Claim> Claim::take(const Folder& folder) {
  const std::scoped_lock lock(lock_of_claims());
  auto held = std::make_shared<HeldClaim>(HeldClaim{.file = {folder, "."}, .waits_for = {}});
  auto opened = os::open_no_link(held->file.at());  // an open file of its own: the lock is not shared
  const int error = opened ? os::try_lock(opened.value.get()) : opened.error;
  if (error == EAGAIN) return std::nullopt;
  if (error != 0) throw OsError("lock", folder.path().string(), error);
  held->fd = std::move(opened.value);
  held_claims().push_back(held);
  return Claim(std::move(held));
}

bool Claim::is_ours(const File& file) {
  const std::scoped_lock lock(lock_of_claims());
  return std::ranges::any_of(held_claims(), [&](const auto& held) { return is_held_at(*held, file); });
}

bool Claim::is_inherited() const { return held_->process != os::process_id(); }

Claim::~Claim() {
  if (!held_) return;
  const std::scoped_lock lock(lock_of_claims());
  std::erase(held_claims(), held_);
  if (is_inherited()) return;
  // Unlink before unlocking, so that a later opener creates a new inode. An emptied folder may have another one
  // already.
  if (leads_to(held_->file, held_->device, held_->inode)) (void)os::remove_file(held_->file.at());
  held_->fd = os::Fd();
}

std::optional<ClaimFacts> look_at_claim(const File& file) {
  if (!facts_of_ours(file)) return std::nullopt;
  const auto fd = os::open_no_link(file.at());
  if (!fd && fd.error == ENOENT) return std::nullopt;
  if (!fd) fail(file, "open", fd.error);
  const auto held = os::is_claimed(fd.value.get());
  if (!held) fail(file, "read the lock of", held.error);
  if (!is_at(fd.value.get(), file.at())) return std::nullopt;  // released meanwhile
  return ClaimFacts{held.value, read_holder(fd.value)};
}

void tell_wait(const std::string& digest) {
  const std::scoped_lock lock(lock_of_claims());
  for (const auto& held : held_claims()) {
    if (held->thread != std::this_thread::get_id() || held->waits_for == digest) continue;
    held->waits_for = digest;
    tell(*held);
  }
}

bool waits_for_us(const Folder& folder, const Holder& holder) {
  auto wanted = holder.waits_for;
  for (int step = 0; step < 64 && !wanted.empty(); ++step) {  // the others' waits may form a cycle without this thread
    const auto file = files_of(folder, wanted).claim;
    if (Claim::is_ours(file)) return true;
    const auto claim = look_at_claim(file);
    wanted = claim && claim->held ? claim->holder.waits_for : std::string();
  }
  return false;
}

}  // namespace store

void report_progress(std::uint64_t bytes) noexcept {
  const std::scoped_lock lock(store::lock_of_claims());
  const auto& claims = store::held_claims();
  const auto of_this_thread = [](const auto& held) { return held->thread == std::this_thread::get_id(); };
  const auto newest = std::ranges::find_if(claims.rbegin(), claims.rend(), of_this_thread);
  if (newest == claims.rend()) return;
  (*newest)->bytes = bytes;
  store::tell(**newest);
}

}  // namespace onecopy
