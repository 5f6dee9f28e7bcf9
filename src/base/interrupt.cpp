#include "onecopy/base/interrupt.hpp"

#include <atomic>

namespace onecopy {
namespace {

std::atomic<Poll> current{nullptr};

}  // namespace

void set_poll(Poll poll) noexcept { current = poll; }

void poll_interrupt() {
  if (const Poll poll = current.load(std::memory_order_relaxed)) poll();
}

}  // namespace onecopy
