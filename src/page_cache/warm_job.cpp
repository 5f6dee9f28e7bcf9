#include <chrono>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "files/reading.hpp"
#include "onecopy/base/error.hpp"
#include "onecopy/page_cache/warm.hpp"
#include "os/os.hpp"
#include "page_cache/warmer.hpp"

namespace onecopy {

// The thread shares its ownership: what waits for a server that does not answer can be left behind.
struct WarmJob::State {
  State(std::vector<WarmPart> of, const WarmOptions& options) : parts(std::move(of)), warmer(options) {
    for (const auto& part : parts) warmer.add(*part.mapping, part.ranges, part.inspector);
  }

  static std::shared_ptr<State> start(std::vector<WarmPart> of, const WarmOptions& options) {
    auto state = std::make_shared<State>(std::move(of), options);
    try {
      state->thread = std::thread([state] {
        (void)os::name_thread("onecopy-warm");
        state->run();
      });
    } catch (const std::system_error&) {
      state->run();  // the system allows no further thread: warm before returning
    }
    return state;
  }

  // Throws OsError ETIMEDOUT where nothing was read for too long. The lock is held.
  void expect_progress() {
    const auto now = std::chrono::steady_clock::now();
    if (const auto moved = warmer.moved(); moved != seen || !since) {
      seen = moved;
      since = now;
    }
    if (now - *since < read_patience()) return;
    warmer.cancel();
    throw_if_stopped({.stalled = true}, "warm", parts.empty() ? "no files" : parts[0].mapping->path());
  }

  void run() noexcept {
    try {
      report = warmer.run();
    } catch (...) {
      error = std::current_exception();
    }
    const std::scoped_lock lock(mutex);
    finished = true;
    changed.notify_all();
  }

  // A forked child has this memory but not the thread, and the mutex may be locked for ever: it uses neither.
  bool forked() const noexcept { return os::process_id() != process; }

  std::vector<WarmPart> parts;
  Warmer warmer;
  WarmReport report;
  std::exception_ptr error;
  std::uint64_t process = os::process_id();
  mutable std::mutex mutex;
  mutable std::condition_variable changed;
  bool finished = false;
  std::uint64_t seen = 0;  // of the progress, and when
  std::optional<std::chrono::steady_clock::time_point> since;
  std::thread thread;  // uses everything above
};

WarmJob::WarmJob(std::shared_ptr<State> state) noexcept : state_(std::move(state)) {}
WarmJob::WarmJob(WarmJob&&) noexcept = default;

WarmJob& WarmJob::operator=(WarmJob&& other) noexcept {
  const WarmJob ended(std::move(*this));
  state_ = std::move(other.state_);
  return *this;
}

WarmJob::~WarmJob() {
  if (!state_) return;
  if (state_->forked()) {
    new std::shared_ptr<State>(std::move(state_));  // NOLINT: never freed, joining a thread that is not here would hang
    return;
  }
  cancel();
  if (!state_->thread.joinable()) return;
  std::unique_lock lock(state_->mutex);
  const bool ended = state_->changed.wait_for(lock, std::chrono::seconds(1), [&] { return state_->finished; });
  lock.unlock();
  ended ? state_->thread.join() : state_->thread.detach();
}

WarmJob WarmJob::start(std::shared_ptr<const Mapping> mapping, std::optional<std::vector<ByteRange>> ranges,
                       const WarmOptions& options) {
  std::vector<WarmPart> parts;
  parts.push_back({std::move(mapping), std::move(ranges), options.inspector});
  return WarmJob(State::start(std::move(parts), options));
}

WarmJob WarmJob::start(std::vector<WarmPart> parts, const WarmOptions& options) {
  if (options.inspector)
    throw std::invalid_argument("an inspector knows one file: set it in each WarmPart, not in the options of the job");
  return WarmJob(State::start(std::move(parts), options));
}

bool WarmJob::done() const { return wait_for(std::chrono::milliseconds(0)); }

Progress WarmJob::progress() const noexcept { return state_->warmer.progress(); }

void WarmJob::cancel() noexcept { state_->warmer.cancel(); }

bool WarmJob::wait_for(std::chrono::milliseconds time) const {
  if (state_->forked())
    throw OsError("wait for the warming of", state_->parts.empty() ? "no files" : state_->parts[0].mapping->path(),
                  ECHILD, "this process was forked while it ran; the job belongs to the parent");
  std::unique_lock lock(state_->mutex);
  const bool finished = state_->changed.wait_for(lock, time, [&] { return state_->finished; });
  if (!finished) state_->expect_progress();
  return finished;
}

WarmReport WarmJob::wait() const {
  while (!wait_for(std::chrono::seconds(1))) {
  }
  if (state_->error) std::rethrow_exception(state_->error);
  return state_->report;
}

}  // namespace onecopy
