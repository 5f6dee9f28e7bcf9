#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <csignal>

#include "os/os.hpp"

namespace onecopy::os {
namespace {

using Repair = bool (*)(const std::byte* address) noexcept;

std::atomic<Repair> current_repair{nullptr};
struct sigaction previous;  // the handler before ours; written before ours is installed

// A handler that was installed later (Python's faulthandler) reinstalls this one, reports, and raises the signal again,
// without an address. Ignoring that signal repeats the touch, and the fault then arrives here with its address. A
// second such signal without a repair in between is forwarded.
std::atomic<bool> let_pass{false};

// A previous handler that returns without a repair (faulthandler, after its report) would receive the same fault for
// ever. A handler that repairs receives each fault only a few times in a row.
constexpr unsigned most_passes = 3;
std::atomic<void*> passed_address{nullptr};
std::atomic<unsigned> passes{0};

// Whether a page cannot be read: the file is shorter, its device fails, or the memory is damaged. An access that is not
// aligned (BUS_ADRALN) raises the same signal, and has nothing to do with the page.
bool is_lost_page(const siginfo_t& info) noexcept {
  switch (info.si_code) {
    case BUS_ADRERR:
    case BUS_OBJERR:
#if defined(BUS_MCEERR_AR)
    case BUS_MCEERR_AR:
    case BUS_MCEERR_AO:
#endif
      return true;
    default: return false;
  }
}

// Whether the CPU or the kernel raised the signal for a touch, which repeats, and no program sent it.
bool is_fault(const siginfo_t& info) noexcept { return is_lost_page(info) || info.si_code == BUS_ADRALN; }

// Sent by raise() in this process, and not by another, nor by kill().
bool is_raised(const siginfo_t& info) noexcept {
#if defined(SI_TKILL)
  return info.si_code == SI_TKILL && info.si_pid == ::getpid();
#else
  return info.si_code == SI_USER && info.si_pid == ::getpid();
#endif
}

bool is_stuck(const siginfo_t& info) noexcept {
  const bool fault = is_fault(info);
  if (!fault && !is_raised(info)) return false;
  if (fault && passed_address.exchange(info.si_addr) != info.si_addr) passes.store(0);
  return passes.fetch_add(1) >= most_passes;
}

void die_of(int signal, const siginfo_t& info) noexcept {
  struct sigaction die = {};
  die.sa_handler = SIG_DFL;
  (void)::sigaction(signal, &die, nullptr);
  if (!is_fault(info)) (void)std::raise(signal);  // was sent; a fault comes again by itself
}

void pass_on(int signal, siginfo_t* info, void* context) noexcept {
  if (is_stuck(*info)) return die_of(signal, *info);
  if ((previous.sa_flags & SA_SIGINFO) != 0) return previous.sa_sigaction(signal, info, context);
  if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) return previous.sa_handler(signal);
  if (previous.sa_handler == SIG_IGN && !is_fault(*info)) return;
  die_of(signal, *info);
}

void on_bus_error(int signal, siginfo_t* info, void* context) noexcept {
  const int saved = errno;
  const Repair repair = current_repair.load(std::memory_order_acquire);
  if (is_lost_page(*info) && repair != nullptr && repair(static_cast<const std::byte*>(info->si_addr))) {
    let_pass.store(false);
    passes.store(0);
  } else if (is_raised(*info) && !let_pass.exchange(true)) {
    // and the touch is repeated
  } else {
    pass_on(signal, info, context);
  }
  errno = saved;
}

}  // namespace

int catch_lost_pages(bool (*repair)(const std::byte* address) noexcept) noexcept {
  struct sigaction now = {};
  if (::sigaction(SIGBUS, nullptr, &now) != 0) return errno;
  current_repair.store(repair, std::memory_order_release);
  if ((now.sa_flags & SA_SIGINFO) != 0 && now.sa_sigaction == on_bus_error) return 0;
  previous = now;
  struct sigaction ours = {};
  ours.sa_sigaction = on_bus_error;
  ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
  (void)::sigemptyset(&ours.sa_mask);
  return ::sigaction(SIGBUS, &ours, nullptr) == 0 ? 0 : errno;
}

int around_fork(void (*before)(), void (*in_parent)(), void (*in_child)()) noexcept {
  return ::pthread_atfork(before, in_parent, in_child);
}

}  // namespace onecopy::os
