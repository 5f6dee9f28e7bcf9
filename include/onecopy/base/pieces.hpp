// A large range is cut into pieces that several threads process in turn. Threads live for one call, so a fork breaks no
// thread pool; starting them costs 20 us per call, which is negligible beside milliseconds of reading.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "onecopy/base/interrupt.hpp"

namespace onecopy {

// Calls work(0) ... work(count - 1), each once, on up to `threads` threads including the caller's; in ascending order
// on each thread. `work` must not throw; it returns false to stop all threads early. Fewer threads run if the system
// permits only fewer. Returns the number of threads. Rethrows what poll_interrupt throws, after all threads have
// stopped.
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
  } catch (const std::exception&) {
    // The limit on threads or on memory is reached: the existing threads do all the work.
  }
  run(poll);
  const auto ran = static_cast<unsigned>(others.size()) + 1;
  others.clear();  // joins
  if (interrupted) std::rethrow_exception(interrupted);
  return ran;
}

// How `watch_pieces` has ended.
struct Watched {
  bool stalled = false;            // no piece has ended for as long as the caller waits
  bool left = false;               // threads still wait for a piece: `work`, and what it uses, live until they return
  std::exception_ptr interrupted;  // what poll_interrupt has thrown
};

// Like for_each_piece, for pieces that may wait for ever, on a server that does not answer: the caller processes no
// piece, but waits, polls for interrupts, and leaves the threads alone when no piece has ended for `patience`, or when
// one does not end within a second of an interrupt. `work` belongs to the threads as well.
template <class Work>
Watched watch_pieces(std::uint64_t count, unsigned threads, std::shared_ptr<Work> work,
                     std::chrono::duration<double> patience) {
  using Clock = std::chrono::steady_clock;
  struct State {
    explicit State(std::shared_ptr<Work> of) : work(std::move(of)) {}
    std::shared_ptr<Work> work;
    std::atomic<std::uint64_t> next{0};
    std::atomic<std::uint64_t> ended{0};
    std::atomic<bool> stop{false};
    std::mutex mutex;
    std::condition_variable changed;
    unsigned running = 0;
  };
  const auto state = std::make_shared<State>(std::move(work));
  const auto run = [state, count]() noexcept {
    while (!state->stop.load(std::memory_order_relaxed)) {
      const std::uint64_t piece = state->next.fetch_add(1, std::memory_order_relaxed);
      if (piece >= count) break;
      if (!(*state->work)(piece)) state->stop.store(true, std::memory_order_relaxed);
      state->ended.fetch_add(1, std::memory_order_relaxed);
    }
    const std::scoped_lock lock(state->mutex);
    --state->running;
    state->changed.notify_all();
  };
  std::unique_lock lock(state->mutex);
  const auto wanted = static_cast<unsigned>(std::min<std::uint64_t>(std::max(threads, 1U), count));
  try {
    for (; state->running < wanted; ++state->running) std::thread(run).detach();
  } catch (const std::exception&) {  // as above; an error here would leave threads alone with the caller's memory
    if (state->running == 0) {
      state->running = 1;
      lock.unlock();
      run();
      return {};
    }
  }
  constexpr std::chrono::milliseconds between_polls{50};
  const auto has_ended = [&] { return state->running == 0; };
  Watched watched;
  auto since = Clock::now();
  std::uint64_t ended = 0;
  while (!watched.stalled && !watched.interrupted && !state->changed.wait_for(lock, between_polls, has_ended)) {
    lock.unlock();
    try {
      poll_interrupt();
    } catch (...) {
      watched.interrupted = std::current_exception();
    }
    lock.lock();
    if (const auto now = state->ended.load(std::memory_order_relaxed); now != ended) {
      ended = now;
      since = Clock::now();
    }
    watched.stalled = Clock::now() - since > patience;
  }
  if (state->running == 0) return watched;
  state->stop.store(true, std::memory_order_relaxed);
  watched.left = !state->changed.wait_for(lock, std::chrono::seconds(1), has_ended);
  return watched;
}

}  // namespace onecopy
