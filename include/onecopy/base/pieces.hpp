// A large range is cut into pieces that several threads process in turn. Threads live for one call, so a fork breaks no
// thread pool; starting them costs 20 us per call, which is negligible beside milliseconds of reading.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <system_error>
#include <thread>
#include <vector>

#include "onecopy/base/interrupt.hpp"

namespace onecopy {

// Calls work(0) ... work(count - 1), each once, on up to `threads` threads including the caller's; in ascending order
// on each thread. `work` must not throw; it returns false to stop all threads early. Fewer threads run where the system
// permits fewer. Returns the number of threads. Rethrows what poll_interrupt throws, after all threads have stopped.
template <class Work>
unsigned for_each_piece(std::uint64_t count, unsigned threads, const Work& work) {
  std::atomic<std::uint64_t> next{0};
  std::atomic<bool> stop{false};
  const auto run = [&](const auto& after_each) noexcept {
    while (!stop.load(std::memory_order_relaxed)) {
      const std::uint64_t piece = next.fetch_add(1, std::memory_order_relaxed);
      if (piece >= count) return;
      if (!work(piece)) stop.store(true, std::memory_order_relaxed);
      after_each();
    }
  };
  std::exception_ptr interrupted;
  const auto poll = [&]() noexcept {
    try {
      poll_interrupt();
    } catch (...) {
      interrupted = std::current_exception();
      stop.store(true, std::memory_order_relaxed);
    }
  };
  std::vector<std::jthread> others;
  const auto wanted = static_cast<unsigned>(std::min<std::uint64_t>(threads, count));
  try {
    for (unsigned i = 1; i < wanted; ++i) others.emplace_back([&run] { run([] {}); });
  } catch (const std::system_error&) {
    // The limit on threads is reached: the existing threads do all the work.
  }
  run(poll);
  const auto ran = static_cast<unsigned>(others.size()) + 1;
  others.clear();  // joins
  if (interrupted) std::rethrow_exception(interrupted);
  return ran;
}

}  // namespace onecopy
