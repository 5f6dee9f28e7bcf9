#include "page_cache/warmer.hpp"

#include <algorithm>
#include <climits>
#include <map>
#include <memory>
#include <thread>

#include "base/clock.hpp"
#include "base/rounding.hpp"
#include "files/reading.hpp"
#include "onecopy/base/pieces.hpp"
#include "onecopy/files/available_memory.hpp"
#include "os/os.hpp"
#include "page_cache/observe.hpp"

namespace onecopy {
namespace {

// Another process that warms the same file is waited for if so much is missing, and as long as it goes on.
constexpr std::uint64_t worth_waiting = std::uint64_t{32} << 20U;
constexpr std::chrono::milliseconds until_the_first_bytes{50};
constexpr std::chrono::milliseconds between_bytes{500};

// What the machine has, for the files of one warming: available memory is read once, and what a device does once.
class Machine {
 public:
  // fills: whether a warming reads anything by itself.
  explicit Machine(bool fills) : fills_(fills) {}

  Conditions conditions_of(const WarmedFile& file, std::uint64_t size_of_all) {
    Conditions conditions;
    conditions.file_size = size_of_all;
    conditions.missing = file.missing();
    conditions.private_copy = file.mapping().mode() == Mode::copy;
    if (conditions.missing == 0) return conditions;  // nothing to decide: the system's files stay unread
    if (!is_read_) available_ = available_memory();
    is_read_ = true;
    if (available_) conditions.available = available_->bytes;
    const auto [device, is_new] = devices_.try_emplace(file.mapping().identity().device);
    if (is_new) {
      if (const auto ahead = os::read_ahead(device->first)) device->second.read_ahead = ahead.value;
      if (const auto system = os::file_system_of(file.mapping().descriptor()))
        device->second.file_system = system.value;
      if (fills_) device->second.latency = file.measure_latency();
    }
    conditions.read_ahead = device->second.read_ahead;
    conditions.file_system = device->second.file_system;
    conditions.latency = device->second.latency;
    return conditions;
  }

 private:
  struct Device {
    std::optional<std::uint64_t> read_ahead;
    std::optional<os::FileSystem> file_system;
    std::optional<double> latency;
  };

  bool fills_;
  bool is_read_ = false;
  std::optional<AvailableMemory> available_;
  std::map<std::uint64_t, Device> devices_;
};

// The kernel drops pages again where memory is short, and where it searches for pages that are not used (DAMON).
void report_lost(WarmReport& report, std::uint64_t left) {
  if (left >= report.bytes) return;
  report.complete = false;
  report.reason +=
      "; " + readable(report.bytes - left) +
      " were dropped again before the end: memory is short, or the kernel reclaims pages that are not used";
}

}  // namespace

void Warmer::add(const Mapping& mapping, Ranges ranges, std::shared_ptr<Inspector> inspector) {
  progress_total_ += files_.emplace_back(mapping, ranges, std::move(inspector)).bytes();
}

WarmReport Warmer::run() {
  const auto start = std::chrono::steady_clock::now();
  for (auto& file : files_) file.find_missing();
  wait_for_another();
  choose_plans();
  std::vector<WarmPiece> pieces;
  for (auto& file : files_) file.append_pieces_to(pieces);
  cut_to_budget(pieces);
  read_all(pieces);
  give_name_back();
  auto report = finish();
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (report.seconds > 0)
    report.gib_per_s = static_cast<double>(report.filled) / static_cast<double>(1U << 30U) / report.seconds;
  return report;
}

int Warmer::take_name(const std::string& name) {
  const std::scoped_lock lock(claim_mutex_);
  auto claim = os::claim_name(name);
  if (claim) claim_ = std::move(claim.value);
  return claim.error;
}

void Warmer::give_name_back() {
  const std::scoped_lock lock(claim_mutex_);
  claim_ = {};
}

// Processes that start together warm the same file: eight threads of each would wait for the same pages, in an order
// that no disk reads fast. The first takes a name of the machine, the others wait as long as the cache fills, and then
// map what it has read. One that reads other parts, or is a stranger that only took the name, is not waited for: the
// cache of these parts does not fill.
void Warmer::wait_for_another() {
  using Clock = std::chrono::steady_clock;
  std::uint64_t missing = 0;
  for (const auto& file : files_) missing += file.missing();
  if (missing < worth_waiting || options_.mechanism.value_or(Mechanism::populate) != Mechanism::populate) return;
  const auto& first = files_.front().mapping().identity();
  const auto name = "onecopy warms " + std::to_string(first.device) + " " + std::to_string(first.inode);
  const auto cached = [&] {
    std::uint64_t sum = 0;
    for (const auto& file : files_) sum += file.cached_now();
    return sum;
  };
  std::uint64_t filled = cached();
  auto since = Clock::now();
  auto patience = until_the_first_bytes;
  bool has_waited = false;
  for (;;) {
    if (take_name(name) != EADDRINUSE || cancelled_.load(std::memory_order_relaxed)) break;
    has_waited = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    if (const auto now = cached(); now > filled) {
      seen_elsewhere_.fetch_add(now - filled, std::memory_order_relaxed);
      filled = now;
      since = Clock::now();
      patience = between_bytes;
    }
    if (Clock::now() - since > patience) break;
  }
  if (!has_waited) return;
  for (auto& file : files_) file.find_missing_again();
}

void Warmer::choose_plans() {
  std::uint64_t size_of_all = 0;
  for (const auto& file : files_) size_of_all += file.mapping().identity().size;
  Machine machine(fills(options_.mechanism.value_or(Mechanism::populate)));
  threads_ = most_threads_ = UINT_MAX;
  most_ = UINT64_MAX;
  std::uint64_t done = 0;
  for (auto& file : files_) {
    const auto conditions = machine.conditions_of(file, size_of_all);
    auto plan = choose(conditions, options_);
    threads_ = std::min(threads_, plan.threads);
    most_threads_ = std::min(most_threads_, plan.most_threads);
    if (plan.fills()) most_ = std::min(most_, plan.most);
    file.prepare(std::move(plan), conditions);
    done += file.inspector() == nullptr ? file.bytes() - file.missing() : 0;
  }
  progress_done_.store(done, std::memory_order_relaxed);
}

void Warmer::cut_to_budget(std::vector<WarmPiece>& pieces) {
  std::uint64_t left = round_down(most_, std::uint64_t{os::page_size()});
  const auto over = std::ranges::find_if(pieces, [&](const WarmPiece& piece) {
    if (!piece.missing) return false;
    if (piece.range.length > left) return true;
    left -= piece.range.length;
    return false;
  });
  within_budget_ = over == pieces.end();
  if (within_budget_) return;
  over->range.length = left;
  pieces.erase(left == 0 ? over : over + 1, pieces.end());
}

// A slow file system is asked by twice as many threads, a piece each, as long as that makes it faster, or by half of
// them where the CPUs are short.
//
// A fault on a 2 MiB page reads 2 MiB, in requests as large as the file system has. Where these are small, the kernel
// puts off many of them as soon as several threads wait (congestion of FUSE), and then reads page by page: reads with
// the usual read-ahead are faster there, by many threads. The first pieces show which it is.
void Warmer::read_all(std::span<const WarmPiece> pieces) {
  const bool slow = std::ranges::any_of(files_, [](const WarmedFile& file) { return file.plan().slow; });
  const bool adapts = threads_ < most_threads_;
  double best = 0;  // bytes per second
  for (bool goes_on = slow; goes_on && !pieces.empty();) {
    const auto part = pieces.first(std::min<std::size_t>(threads_, pieces.size()));
    pieces = pieces.subspan(part.size());
    const auto start = std::chrono::steady_clock::now();
    const auto faults = major_faults_.load();
    RoundTimes times;
    if (!visit(part, adapts ? &times : nullptr)) return;
    std::uint64_t bytes = 0;
    for (const auto& piece : part) bytes += piece.range.length;
    const bool was_first = best == 0 && !reads_first_;
    if (was_first) reads_first_ = are_requests_small(major_faults_.load() - faults, bytes);
    if (was_first && reads_first_) continue;  // the rate of faults says nothing about reads
    if (!adapts) break;
    const Round round{.threads = threads_,
                      .rate = static_cast<double>(bytes) / seconds_since(start),
                      .cpu_wait = static_cast<double>(times.cpu_wait) / static_cast<double>(times.all)};
    threads_ = next_threads(round, best, most_threads_);
    goes_on = threads_ != round.threads;
    best = std::max(best, round.rate);
  }
  (void)visit(pieces);
}

bool Warmer::visit(std::span<const WarmPiece> pieces, RoundTimes* times) {
  std::atomic<bool> goes_on{true};
  const unsigned ran = for_each_piece(pieces.size(), threads_, [&](std::uint64_t i) noexcept {
    const auto before = os::faults_of_thread();
    const auto waited = times == nullptr ? 0 : os::cpu_wait_of_thread();
    const auto start = std::chrono::steady_clock::now();
    const bool go_on = visit_piece(pieces[i]);
    if (!go_on) goes_on.store(false, std::memory_order_relaxed);
    const auto after = os::faults_of_thread();
    minor_faults_.fetch_add(after.minor - before.minor, std::memory_order_relaxed);
    major_faults_.fetch_add(after.major - before.major, std::memory_order_relaxed);
    if (times != nullptr) {
      const auto took = (std::chrono::steady_clock::now() - start) / std::chrono::nanoseconds(1);
      times->all += static_cast<std::uint64_t>(took);
      times->cpu_wait += os::cpu_wait_of_thread() - waited;
    }
    return go_on;
  });
  threads_ran_ = std::max(threads_ran_, ran);
  if (failed_file_ != nullptr) failed_file_->fail(error_.load(), failed_at_);
  return goes_on.load(std::memory_order_relaxed);
}

bool Warmer::visit_piece(const WarmPiece& piece) noexcept {
  const auto& file = *piece.file;
  const std::uint64_t end = piece.range.offset + piece.range.length;
  // The disk has written these pages, and no CPU has read them yet. On a virtual machine that gets its memory on first
  // access, that access costs 1 to 2 us a page: better here, beside the reading, than in the caller's first pass
  // (docs/decisions/reading-and-warming.md). Pages that another process brought in were accessed there; an inspector
  // accesses them, too.
  const bool is_first = piece.missing && file.inspector() == nullptr && !is_cached(file.mapping(), piece.range);
  const Touch touch = is_first && !reads_first_ ? Touch::yes : Touch::no;
  for (std::uint64_t at = piece.range.offset; at < end && !cancelled_.load(std::memory_order_relaxed);) {
    const auto step = part_at(at, piece.range, step_size, file.mapping().file_offset());
    if (const int error = piece.missing ? fill(piece, step, touch) : 0; error != 0) {
      int none = 0;
      if (error_.compare_exchange_strong(none, error)) {
        failed_file_ = &file;
        failed_at_ = at;
      }
      return false;
    }
    if (piece.missing) filled_.fetch_add(step.length, std::memory_order_relaxed);
    if (file.inspector() != nullptr && !file.inspector()->inspect(step)) return false;
    progress_done_.fetch_add(step.length, std::memory_order_relaxed);
    at += step.length;
  }
  return !cancelled_.load(std::memory_order_relaxed);
}

int Warmer::fill(const WarmPiece& piece, ByteRange step, Touch touch) noexcept {
  const auto& file = *piece.file;
  if (piece.alone) file.prefetch(step);
  if (reads_first_)
    if (const int error = file.read(step); error != 0) return error;
  if (file.plan().mechanism == Mechanism::populate && !cannot_populate_.load(std::memory_order_relaxed)) {
    const int error = file.populate(step, touch);
    if (error != ENOSYS) return error;
    cannot_populate_.store(true, std::memory_order_relaxed);
  }
  return file.read(step);
}

WarmReport Warmer::finish() {
  const bool whole = within_budget_ && !cancelled_.load();
  std::vector<WarmReport> reports;
  std::uint64_t isolated = 0;
  for (auto& file : files_) {
    isolated += file.isolated_bytes();
    auto& report = reports.emplace_back(file.finish());
    // Where the kernel does not report what is cached, populating all of it proves that it is.
    const bool populated = whole && !cannot_populate_.load() && report.mechanism == Mechanism::populate;
    if (!report.cached_after && populated) report.cached_after = report.bytes;
    if (whole && file.plan().fills() && report.cached_after) report_lost(report, *report.cached_after);
  }
  auto report = total(reports);
  report.filled = filled_.load();
  report.minor_faults = minor_faults_.load();
  report.major_faults = major_faults_.load();
  report.threads = threads_ran_;
  report.complete = report.complete && whole;
  if (isolated != 0) report.reason += "; " + readable(isolated) + " in isolated ranges, read without what lies around";
  if (!within_budget_)
    report.reason += "; stopped at " + (options_.budget ? "the budget of " + readable(most_)
                                                        : readable(most_) +
                                                              ", the available memory less what the kernel may read "
                                                              "ahead");
  if (cannot_populate_.load()) {
    report.mechanism = Mechanism::read;
    report.reason += "; read, because this kernel cannot populate";
  }
  if (reads_first_) report.reason += "; its requests are small: read, and then mapped";
  if (cancelled_.load()) report.reason += "; cancelled";
  return report;
}

WarmReport warm(const Mapping& mapping, Ranges ranges, const WarmOptions& options) {
  const auto warmer = std::make_unique<Warmer>(options);
  warmer->add(mapping, ranges, options.inspector);
  return warmer->run();
}

}  // namespace onecopy
