#include <condition_variable>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "onecopy/base/error.hpp"
#include "onecopy/page_cache/warm.hpp"
#include "os/os.hpp"
#include "page_cache/warmer.hpp"

namespace onecopy {

struct WarmJob::State {
  State(std::vector<WarmPart> of, const WarmOptions& options) : parts(std::move(of)), warmer(options) {
    for (const auto& part : parts) warmer.add(*part.mapping, part.ranges, part.inspector);
    try {
      thread = std::thread([this] {
        (void)os::name_thread("onecopy-warm");
        run();
      });
    } catch (const std::system_error&) {
      run();  // the system allows no further thread: warm before returning
    }
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
  std::thread thread;  // uses everything above
};

WarmJob::WarmJob(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}
WarmJob::WarmJob(WarmJob&&) noexcept = default;

WarmJob& WarmJob::operator=(WarmJob&& other) noexcept {
  const WarmJob ended(std::move(*this));
  state_ = std::move(other.state_);
  return *this;
}

WarmJob::~WarmJob() {
  if (!state_) return;
  if (state_->forked()) {
    (void)state_.release();  // NOLINT(bugprone-unused-return-value): joining a thread that is not here would hang
    return;
  }
  cancel();
  if (state_->thread.joinable()) state_->thread.join();
}

WarmJob WarmJob::start(std::shared_ptr<const Mapping> mapping, std::optional<std::vector<ByteRange>> ranges,
                       const WarmOptions& options) {
  std::vector<WarmPart> parts;
  parts.push_back({std::move(mapping), std::move(ranges), options.inspector});
  return WarmJob(std::make_unique<State>(std::move(parts), options));
}

WarmJob WarmJob::start(std::vector<WarmPart> parts, const WarmOptions& options) {
  if (options.inspector)
    throw std::invalid_argument("an inspector knows one file: set it in each WarmPart, not in the options of the job");
  return WarmJob(std::make_unique<State>(std::move(parts), options));
}

bool WarmJob::done() const { return wait_for(std::chrono::milliseconds(0)); }

Progress WarmJob::progress() const noexcept { return state_->warmer.progress(); }

void WarmJob::cancel() noexcept { state_->warmer.cancel(); }

bool WarmJob::wait_for(std::chrono::milliseconds time) const {
  if (state_->forked())
    throw OsError("wait for the warming of", state_->parts.empty() ? "no files" : state_->parts[0].mapping->path(),
                  ECHILD, "this process was forked while it ran; the job belongs to the parent");
  std::unique_lock lock(state_->mutex);
  return state_->changed.wait_for(lock, time, [&] { return state_->finished; });
}

WarmReport WarmJob::wait() const {
  while (!wait_for(std::chrono::hours(1))) {
  }
  if (state_->error) std::rethrow_exception(state_->error);
  return state_->report;
}

}  // namespace onecopy
