#include "files/guard.hpp"

#include <atomic>
#include <deque>
#include <mutex>
#include <utility>

#include "base/rounding.hpp"
#include "files/fork_mutex.hpp"
#include "onecopy/base/error.hpp"
#include "os/os.hpp"

namespace onecopy {

// One mapping, in a form that a signal handler can read: atomics only, in memory that is never freed, because a handler
// may read any slot at any time. Free slots are reused, so there are never more than mappings were open at once.
struct Guarded::Slot {
  std::atomic<std::byte*> first{nullptr};  // null: free; written last when taken, first when given back
  std::atomic<std::size_t> size{0};
  std::atomic<int> fd{-1};
  std::atomic<std::uint64_t> file_offset{0};
  std::atomic<bool> writable{false};
  std::atomic<std::uint64_t> lost_at{UINT64_MAX};  // in the file; the largest number: nothing
  std::atomic<bool> truncated{false};

  std::uint64_t file_end = 0;  // these three under the lock
  std::string path;
  Slot* next_free = nullptr;
  Slot* next = nullptr;  // of the list, which only grows
};

namespace {

using Slot = Guarded::Slot;

struct Closed {
  std::string path;
  Loss loss;
};

std::atomic<Slot*> slots{nullptr};
Slot* free_slots = nullptr;  // under the lock

// Protects the list, except in the signal handler.
ForkMutex& lock_of_list() {
  static auto& mutex = *new ForkMutex;  // NOLINT(cppcoreguidelines-owning-memory): outlives mappings closed at exit
  return mutex;
}

// Losses of closed mappings, for check(); only the last few are kept.
std::deque<Closed>& closed_losses() {
  static auto& losses = *new std::deque<Closed>;  // NOLINT: outlives mappings that are closed at exit
  return losses;
}

constexpr std::size_t most_closed = 64;

std::optional<Loss> loss_of(const Slot& slot) noexcept {
  const std::uint64_t at = slot.lost_at.load(std::memory_order_acquire);
  if (at == UINT64_MAX) return std::nullopt;
  return Loss{at, slot.truncated.load(std::memory_order_relaxed)};
}

void record(Slot& slot, std::uint64_t at, bool truncated) noexcept {
  if (truncated) slot.truncated.store(true, std::memory_order_relaxed);
  std::uint64_t known = slot.lost_at.load(std::memory_order_relaxed);
  while (at < known && !slot.lost_at.compare_exchange_weak(known, at, std::memory_order_release)) {
  }
}

// Maps zeros over unreadable pages: after a truncation over everything behind the end, else over the one page.
bool replace(Slot& slot, std::byte* first, std::size_t page) noexcept {
  const std::uint64_t offset = slot.file_offset.load(std::memory_order_relaxed) + page;
  const auto now = os::facts_of(slot.fd.load(std::memory_order_relaxed));
  const bool truncated = now && now.value.size <= offset;
  const std::size_t size = truncated ? slot.size.load(std::memory_order_relaxed) - page : os::page_size();
  const auto access = slot.writable.load(std::memory_order_relaxed) ? os::Access::write : os::Access::read;
  if (os::map_heap_at(first + page, size, access) != 0) return false;
  record(slot, truncated ? now.value.size : offset, truncated);
  return true;
}

// In a signal handler: no locks, no memory.
bool repair(const std::byte* address) noexcept {
  for (Slot* slot = slots.load(std::memory_order_acquire); slot != nullptr; slot = slot->next) {
    std::byte* const first = slot->first.load(std::memory_order_acquire);
    const std::size_t size = slot->size.load(std::memory_order_acquire);  // before the address is read again
    if (first == nullptr || address < first) continue;
    const auto distance = static_cast<std::size_t>(address - first);
    // The faulting thread's mapping outlives the handler; a slot reused meanwhile is another mapping's and is ignored.
    if (distance >= size || slot->first.load(std::memory_order_relaxed) != first) continue;
    return replace(*slot, first, round_down(distance, os::page_size()));
  }
  return false;
}

Slot& free_slot() {
  if (free_slots != nullptr) return *std::exchange(free_slots, free_slots->next_free);
  auto* slot = new Slot;  // NOLINT(cppcoreguidelines-owning-memory): kept for ever, see above
  slot->next = slots.load(std::memory_order_relaxed);
  slots.store(slot, std::memory_order_release);
  return *slot;
}

}  // namespace

void fail_of_loss(const std::string& path, const Loss& loss) {
  const std::string at = std::to_string(loss.offset);
  throw DataLost("read", path, EIO,
                 loss.truncated
                     ? "the file was truncated to " + at + " bytes while mapped; the lost part reads as zeros"
                     : "the page at offset " + at + " could not be read, and reads as zeros",
                 loss.offset);
}

Guarded::Guarded(const GuardedPages& pages, const std::string& path) {
  const std::scoped_lock lock(lock_of_list());
  slot_ = &free_slot();
  slot_->path = path;
  slot_->file_end = pages.file_end;
  slot_->size.store(pages.size, std::memory_order_release);  // a thread that reads it sees that the slot was free
  slot_->fd.store(pages.fd, std::memory_order_relaxed);
  slot_->file_offset.store(pages.file_offset, std::memory_order_relaxed);
  slot_->writable.store(pages.writable, std::memory_order_relaxed);
  slot_->lost_at.store(UINT64_MAX, std::memory_order_relaxed);
  slot_->truncated.store(false, std::memory_order_relaxed);
  slot_->first.store(pages.first, std::memory_order_release);
}

Guarded::~Guarded() {
  const std::scoped_lock lock(lock_of_list());
  slot_->first.store(nullptr, std::memory_order_release);
  if (const auto lost = loss_of(*slot_)) {
    closed_losses().push_back({std::move(slot_->path), *lost});
    if (closed_losses().size() > most_closed) closed_losses().pop_front();
  }
  slot_->path.clear();
  slot_->next_free = std::exchange(free_slots, slot_);
}

std::optional<Loss> Guarded::loss() const noexcept { return loss_of(*slot_); }

void guard() {
  if (const int error = os::catch_lost_pages(repair); error != 0) throw OsError("guard", "SIGBUS", error);
}

void check() {
  const std::scoped_lock lock(lock_of_list());
  for (const Slot* slot = slots.load(std::memory_order_relaxed); slot != nullptr; slot = slot->next) {
    if (slot->first.load(std::memory_order_relaxed) == nullptr) continue;
    if (const auto lost = loss_of(*slot)) fail_of_loss(slot->path, *lost);
    const auto now = os::facts_of(slot->fd.load(std::memory_order_relaxed));
    if (now && now.value.size < slot->file_end) fail_of_loss(slot->path, {now.value.size, true});
  }
  if (closed_losses().empty()) return;
  const Closed first = std::move(closed_losses().front());
  closed_losses().pop_front();
  fail_of_loss(first.path, first.loss);
}

}  // namespace onecopy
