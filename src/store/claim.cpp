#include "store/claim.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <mutex>
#include <ranges>
#include <span>
#include <thread>
#include <vector>

#include "onecopy/base/error.hpp"
#include "onecopy/store/store.hpp"
#include "os/os.hpp"
#include "store/folder.hpp"

namespace onecopy {
namespace store {

namespace fs = std::filesystem;

struct HeldClaim {
  fs::path path;
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  os::Fd fd;
  std::int64_t since_ns = 0;
  std::thread::id thread = std::this_thread::get_id();
  std::uint64_t process = os::process_id();
};

namespace {

using HeldClaims = std::vector<std::shared_ptr<HeldClaim>>;

// Those of this process, oldest first. In a forked child: those of the thread that forked, without their descriptors.
HeldClaims& held_claims() {
  static auto& claims = *new HeldClaims;  // NOLINT: outlives threads that build while the process ends
  return claims;
}

std::mutex& plain_lock() {
  static std::mutex mutex;
  return mutex;
}

void before_fork() { plain_lock().lock(); }

// A child must not keep a lock that its parent's death is to give back. It keeps the knowledge of what the thread that
// forked is building, because to ask for that in the child would be to wait for oneself.
void after_fork() {
  const auto process = os::process_id();
  const auto thread = std::this_thread::get_id();
  auto& claims = held_claims();
  for (const auto& held : claims)
    if (held->process != process) held->fd = os::Fd();
  std::erase_if(claims, [&](const auto& held) { return held->process != process && held->thread != thread; });
  plain_lock().unlock();
}

// Held while a claim is opened, locked and entered, and over every fork: no descriptor escapes into a child.
std::mutex& lock_of_claims() {
  static const int around = os::around_fork(before_fork, after_fork);
  (void)around;
  return plain_lock();
}

constexpr std::size_t facts_size = 63;  // the first line: of fixed length, so that it can be overwritten
constexpr std::size_t longest = std::size_t{1} << 16U;

std::string first_line(const HeldClaim& held, std::uint64_t bytes) {
  std::array<char, facts_size + 1> text{};
  std::snprintf(text.data(), text.size(), "%20llu %20lld %20llu\n", static_cast<unsigned long long>(held.process),
                static_cast<long long>(held.since_ns), static_cast<unsigned long long>(bytes));
  return text.data();
}

// For those who wait: a full disk is no reason not to build.
void tell(const HeldClaim& held, std::uint64_t bytes, const std::string& key) noexcept {
  try {
    const std::string text = first_line(held, bytes) + key;
    (void)os::write_at(held.fd.get(), std::as_bytes(std::span(text)), 0);
  } catch (const std::bad_alloc&) {  // then nobody is told
  }
}

Holder parse_holder(const std::string& text) {
  unsigned long long process = 0;
  unsigned long long bytes = 0;
  long long since = 0;
  if (text.size() < facts_size || std::sscanf(text.c_str(), "%llu %lld %llu", &process, &since, &bytes) != 3) return {};
  return {process, since, bytes, text.substr(facts_size)};
}

bool is_at(std::uint64_t device, std::uint64_t inode, const fs::path& path) {
  const auto named = os::facts_of_entry(path.string());
  return named && named.value.device == device && named.value.inode == inode;
}

bool is_at(const os::Fd& fd, const fs::path& path) {
  const auto ours = os::facts_of(fd.get());
  return ours && is_at(ours.value.device, ours.value.inode, path);
}

std::int64_t now_ns() { return std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count(); }

// None: held by somebody. The file that was locked may have been released and removed meanwhile: then again.
os::Fd open_and_lock(const fs::path& path) {
  for (;;) {
    (void)facts_of_ours(path);
    auto fd = os::open_or_create(path.string());
    if (!fd) throw OsError("claim", path.string(), fd.error);
    const int error = os::try_claim(fd.value.get());
    if (error == EAGAIN) return {};
    if (error != 0) throw OsError("lock", path.string(), error);
    if (is_at(fd.value, path)) return std::move(fd.value);
  }
}

}  // namespace

std::optional<Claim> Claim::take(const fs::path& path, const std::string& key) {
  const std::scoped_lock lock(lock_of_claims());
  auto held = std::make_shared<HeldClaim>();
  held->fd = open_and_lock(path);
  if (!held->fd) return std::nullopt;
  const auto facts = os::facts_of(held->fd.get());
  held->path = path;
  held->device = facts.value.device;
  held->inode = facts.value.inode;
  held->since_ns = now_ns();
  tell(*held, 0, key);
  held_claims().push_back(held);
  return Claim(std::move(held));
}

bool Claim::is_ours(const fs::path& path) {
  const std::scoped_lock lock(lock_of_claims());
  return std::ranges::any_of(held_claims(), [&](const auto& held) {
    return held->thread == std::this_thread::get_id() && is_at(held->device, held->inode, path);
  });
}

bool Claim::is_inherited() const { return held_->process != os::process_id(); }

Claim::~Claim() {
  if (!held_) return;
  const std::scoped_lock lock(lock_of_claims());
  std::erase(held_claims(), held_);
  if (is_inherited()) return;
  // First: who opens it now makes another. Somebody who emptied the folder may have let another make his already.
  if (is_at(held_->device, held_->inode, held_->path)) (void)os::remove_file(held_->path.string());
  held_->fd = os::Fd();
}

std::optional<ClaimFacts> look_at_claim(const fs::path& path) {
  if (!facts_of_ours(path)) return std::nullopt;
  const auto fd = os::open_no_link(path.string());
  if (!fd && fd.error == ENOENT) return std::nullopt;
  if (!fd) throw OsError("open", path.string(), fd.error);
  const auto held = os::is_claimed(fd.value.get());
  if (!held) throw OsError("look at the lock of", path.string(), held.error);
  if (!is_at(fd.value, path)) return std::nullopt;  // released meanwhile
  std::string text(longest, '\0');
  const auto got = os::read_at(fd.value.get(), std::as_writable_bytes(std::span(text)), 0);
  text.resize(got.value);
  return ClaimFacts{held.value, parse_holder(text)};
}

}  // namespace store

void report_progress(std::uint64_t bytes) noexcept {
  const std::scoped_lock lock(store::lock_of_claims());
  const auto& claims = store::held_claims();
  if (claims.empty()) return;
  const auto of_this_thread = [](const auto& held) { return held->thread == std::this_thread::get_id(); };
  const auto newest = std::ranges::find_if(claims.rbegin(), claims.rend(), of_this_thread);
  store::HeldClaim& held = newest == claims.rend() ? *claims.back() : **newest;
  // A child that builds for its parent: a descriptor of its own, which has no part in the lock.
  if (!held.fd) held.fd = std::move(os::open_existing(held.path.string()).value);
  if (held.fd) store::tell(held, bytes, {});
}

}  // namespace onecopy
