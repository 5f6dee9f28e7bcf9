#include "onecopy/page_cache/warm.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <climits>
#include <condition_variable>
#include <deque>
#include <exception>
#include <iterator>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "base/clock.hpp"
#include "base/rounding.hpp"
#include "files/fork_mutex.hpp"
#include "files/reading.hpp"
#include "onecopy/base/error.hpp"
#include "onecopy/base/pieces.hpp"
#include "onecopy/files/snapshot.hpp"
#include "os/os.hpp"
#include "page_cache/observe.hpp"
#include "page_cache/ranges.hpp"
#include "page_cache/warm_plan.hpp"

namespace onecopy {
namespace {

class WarmedFile;

// Whether a byte of each page is accessed once the page is in memory.
enum class Touch : std::uint8_t { no, yes };

// What one thread takes at a time.
struct WarmPiece {
  WarmedFile* file = nullptr;
  ByteRange range;
  bool missing = false;  // to be brought in; else only to be inspected
  bool alone = false;    // without the kernel's read-around
};

// The part of `range` from `at` on, up to the next multiple of `size` in the *file*: two parts never share a 2 MiB
// page.
ByteRange part_at(std::uint64_t at, ByteRange range, std::uint64_t size, std::uint64_t file_offset) {
  const std::uint64_t to_cut = size - (file_offset + at) % size;
  return {at, std::min(to_cut, range.offset + range.length - at)};
}

// One file of a warming: which parts are missing, how they are read, and the result.
class WarmedFile {
 public:
  // The mapping has to outlive this object.
  WarmedFile(const Mapping& mapping, Ranges ranges, std::shared_ptr<Inspector> inspector)
      : mapping_(mapping),
        inspector_(std::move(inspector)),
        ranges_(whole_pages(ranges, mapping.bytes().size(), mapping.file_offset())) {
    report_.bytes = total_length(ranges_);
  }

  // These three in this order, from one thread; find_missing() may be called again after a while. Throws DataLost where
  // the file no longer has the bytes.
  void find_missing() {
    expect_bytes(mapping_, ranges_, "warm");
    const auto cached_now = cached_bytes(mapping_, ranges_);
    if (pieces_.empty()) report_.cached_before = cached_now;
    pieces_.clear();
    missing_ = 0;
    const bool copied = mapping_.mode() == Mode::copy;
    const bool cached = cached_now == report_.bytes;
    if (copied && !inspector_) return;
    for (const auto& range : ranges_) {
      for (std::uint64_t at = range.offset; at < range.offset + range.length; at += pieces_.back().range.length) {
        const auto piece = part_at(at, range, largest_piece, mapping_.file_offset());
        const bool missing = !copied && ((!cached && !is_cached(mapping_, piece)) || has_unread_pages(piece));
        pieces_.push_back({.file = this, .range = piece, .missing = missing});
        missing_ += missing ? piece.length : 0;
      }
    }
  }

  void prepare(Plan plan, const Conditions& conditions) {
    plan_ = std::move(plan);
    if (conditions.file_system) report_.file_system = conditions.file_system->name;
    report_.latency = conditions.latency;
    report_.reason = plan_.reason;
    report_.mechanism = plan_.mechanism;
    report_.piece = plan_.fills() ? plan_.piece : 0;
    report_.complete = plan_.fills() || plan_.nothing_missing;
    if (plan_.fills())
      isolate();
    else
      std::ranges::for_each(pieces_, [](WarmPiece& piece) { piece.missing = false; });
    if (plan_.huge) advise_huge();
    if (plan_.too_large && inspector_) inspector_->leave_no_cache();
  }

  void append_pieces_to(std::vector<WarmPiece>& pieces) {
    for (const auto& found : pieces_) {
      if (!found.missing && !inspector_) continue;
      const std::uint64_t end = found.range.offset + found.range.length;
      for (auto piece = found; piece.range.offset < end; piece.range.offset += piece.range.length) {
        piece.range = part_at(piece.range.offset, {piece.range.offset, end - piece.range.offset}, plan_.piece,
                              mapping_.file_offset());
        pieces.push_back(piece);
      }
    }
  }

  // Seconds until one small read of what is missing is answered, past the page cache. Empty: the file system has no
  // such reads.
  std::optional<double> measure_latency() const noexcept {
    const auto is_missing = [](const WarmPiece& piece) { return piece.missing; };
    const auto last = std::ranges::find_if(pieces_.rbegin(), pieces_.rend(), is_missing);
    if (last == pieces_.rend()) return std::nullopt;
    // Past the page cache, where the file system can; of a server through it: a process that waits for a server in a
    // direct read cannot be ended.
    os::Result<os::Fd> direct{{}, EOPNOTSUPP};
    if (!is_remote(mapping_.descriptor())) direct = os::reopen_direct(mapping_.descriptor());
    alignas(os::direct_alignment) std::array<std::byte, os::direct_alignment> block;  // NOLINT(*-member-init)
    const auto measure = [&](std::uint64_t offset) -> std::optional<double> {
      const auto at = (mapping_.file_offset() + offset) / block.size() * block.size();
      const auto start = std::chrono::steady_clock::now();
      const auto got = os::read_at(direct ? direct.value.get() : mapping_.descriptor(), block, at);
      return got ? std::optional(seconds_since(start)) : std::nullopt;
    };
    // At the end of what is missing: around the header, pages were read with it.
    auto latency = measure(last->range.offset + last->range.length - 1);
    // One answer may be late where others use the disk or the CPU as well.
    const auto first = std::ranges::find_if(pieces_, is_missing);
    for (const auto offset : {first->range.offset + first->range.length / 2, last->range.offset})
      if (direct && latency >= slow_answer) latency = std::min(latency, measure(offset));
    return latency;
  }

  // From any thread; errno, ENOSYS where the kernel cannot populate.
  int populate(ByteRange step, Touch touch) const noexcept {
    const auto pages = pages_of(mapping_, step);
    const int error = os::populate(pages);
    return error == 0 && touch == Touch::yes && os::touch(pages) == EFAULT ? EFAULT : error;
  }

  int read(ByteRange step) const noexcept {
    return read_in_parts(mapping_.descriptor(), {mapping_.file_offset() + step.offset, step.length},
                         [](Bytes, std::uint64_t) { return 0; });
  }

  // Starts reading exactly this, so that a later page fault waits for its own page and reads nothing around it.
  void prefetch(ByteRange step) const noexcept {
    const auto pages = file_pages(mapping_, step);
    for (std::uint64_t done = 0; done < pages.length; done += plan_.at_once)
      (void)os::will_need(mapping_.descriptor(), {pages.offset + done, std::min(plan_.at_once, pages.length - done)});
  }

  // Once, when all threads have ended. Throws the inspector's error.
  WarmReport finish() {
    if (inspector_) report_.verified = inspector_->finish();
    report_.cached_after = report_.cached_before;
    if (plan_.mechanism == Mechanism::none && !inspector_) return std::move(report_);
    report_.cached_after = cached_bytes(mapping_, ranges_);
    if (const auto here = mapped(mapping_, ranges_); here && here->mapped != 0)
      report_.huge_share = static_cast<double>(here->huge) / static_cast<double>(here->mapped);
    return std::move(report_);
  }

  // Throws DataLost or OsError for a step at `at` that failed with `error`.
  [[noreturn]] void fail(int error, std::uint64_t at) const {
    expect_bytes(mapping_, ranges_, "warm");
    throw_read_error("warm", mapping_.path(), error == EFAULT ? EIO : error, mapping_.file_offset() + at);
  }

  const Mapping& mapping() const noexcept { return mapping_; }
  const Plan& plan() const noexcept { return plan_; }
  Inspector* inspector() const noexcept { return inspector_.get(); }
  std::uint64_t bytes() const noexcept { return report_.bytes; }
  std::uint64_t missing() const noexcept { return missing_; }
  std::uint64_t isolated_bytes() const noexcept { return total_length(isolated_); }
  std::uint64_t cached_now() const { return cached_bytes(mapping_, ranges_).value_or(0); }

 private:
  // A page that the device failed to read stays in the cache, and cachestat counts it like the others. mincore does
  // not, but costs far more: it is called for one page in each part of 2 MiB. Where mincore is refused, no page counts
  // as unread.
  bool has_unread_pages(ByteRange piece) const noexcept {
    for (std::uint64_t at = piece.offset; at < piece.offset + piece.length; at += os::huge_page) {
      const auto facts = os::cached_by_mincore(mapping_.descriptor(), pages_of(mapping_, {at, 1}));
      if (!facts) return false;
      if (facts.value.cached == 0) return true;
    }
    return false;
  }

  void isolate() {
    if (plan_.overshoot == 0) return;
    isolated_ = isolated_ranges(ranges_, mapping_.bytes().size(), plan_.overshoot, plan_.part);
    auto range = isolated_.begin();
    for (auto& piece : pieces_) {
      while (range != isolated_.end() && range->offset + range->length <= piece.range.offset) ++range;
      piece.alone = range != isolated_.end() && range->offset <= piece.range.offset;
    }
  }

  void advise_huge() {
    std::vector<ByteRange> together;
    std::ranges::set_difference(ranges_, isolated_, std::back_inserter(together), {}, &ByteRange::offset,
                                &ByteRange::offset);
    if (together.empty() && !isolated_.empty()) {
      report_.reason += ", but not for isolated ranges";
      return;
    }
    const auto parts = huge_parts(together, mapping_.bytes().size(), mapping_.file_offset());
    if (parts.empty()) {
      report_.reason += ", but the ranges cover less than half of each";
      return;
    }
    auto worst = Outcome::applied;
    for (const auto& part : parts) {
      const auto outcome = os::advise_huge(pages_of(mapping_, part));
      if (outcome != Outcome::applied) worst = outcome;
    }
    report_.huge = worst;
    if (worst != Outcome::applied) report_.reason += "; 2 MiB pages: " + std::string(to_string(worst));
  }

  const Mapping& mapping_;
  std::shared_ptr<Inspector> inspector_;
  std::vector<ByteRange> ranges_;
  std::vector<ByteRange> isolated_;  // of these ranges, those read without what lies around
  std::vector<WarmPiece> pieces_;
  std::uint64_t missing_ = 0;
  Plan plan_;
  WarmReport report_;
};

// Another process that warms the same file is waited for if so much is missing, and as long as it goes on.
constexpr std::uint64_t worth_waiting = std::uint64_t{32} << 20U;
constexpr std::chrono::milliseconds until_the_first_bytes{50};
// Querying the cached bytes takes up to a millisecond of a CPU: 15 processes that ask every 2 ms slow down the reader.
constexpr std::chrono::milliseconds between_looks{50};
constexpr std::chrono::milliseconds between_bytes{500};

// The kernel drops pages again where memory is short, and where it searches for pages that are not used (DAMON).
void report_lost(WarmReport& report, std::uint64_t left) {
  if (left >= report.bytes) return;
  report.complete = false;
  report.reason += "; " + readable(report.bytes - left) +
                   " were dropped again before the end: memory is short, or the kernel reclaims unused pages";
}

// A warming: files cut into pieces, which threads take in turn, with counters that other threads may read.
class Warmer {  // on the heap: see fork_mutex.hpp
 public:
  explicit Warmer(WarmOptions options) : options_(std::move(options)) {}

  // Call before run(). The mapping must outlive this object.
  void add(const Mapping& mapping, Ranges ranges, std::shared_ptr<Inspector> inspector) {
    progress_total_ += files_.emplace_back(mapping, ranges, std::move(inspector)).bytes();
  }

  // Once; throws DataLost, OsError, and what inspectors have found.
  WarmReport run() {
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
    report.seconds = seconds_since(start);
    report.gib_per_s = gib_per_s(report.filled, report.seconds);
    return report;
  }

  // From any thread, while run() works in another.
  void cancel() noexcept { cancelled_.store(true, std::memory_order_relaxed); }
  // Grows whenever bytes arrive in memory, here or read by the process that this one waits for.
  std::uint64_t moved() const noexcept {
    return progress_done_.load(std::memory_order_relaxed) + seen_elsewhere_.load(std::memory_order_relaxed);
  }
  Progress progress() const noexcept { return {progress_done_.load(std::memory_order_relaxed), progress_total_}; }

 private:
  // Returns errno.
  int take_name(const std::string& name) {
    const std::scoped_lock lock(claim_mutex_);
    auto claim = os::claim_name(name);
    if (claim) claim_ = std::move(claim.value);
    return claim.error;
  }

  void give_name_back() {
    const std::scoped_lock lock(claim_mutex_);
    claim_ = {};
  }

  // Processes that start together warm the same file: eight threads of each would wait for the same pages, in an order
  // that no disk reads fast. The first claims a name on the machine, the others wait as long as the cache fills, and
  // then map what it has read. One that reads other parts, or an unrelated process that took
  // the name, is not waited for: the cache of these parts does not fill.
  void wait_for_another() {
    using Clock = std::chrono::steady_clock;
    std::uint64_t missing = 0;
    std::uint64_t wanted = 0;
    for (const auto& file : files_) {
      missing += file.missing();
      wanted += file.bytes();
    }
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
      os::wait_for_name(name, between_looks);
      const auto now = cached();
      if (now == wanted) break;
      if (now > filled) {
        seen_elsewhere_.fetch_add(now - filled, std::memory_order_relaxed);
        filled = now;
        since = Clock::now();
        patience = between_bytes;
      }
      if (Clock::now() - since > patience) break;
    }
    if (!has_waited) return;
    for (auto& file : files_) file.find_missing();
  }

  Conditions measured_conditions(const WarmedFile& file) const {
    auto conditions = conditions_of(file.mapping().descriptor(), file.mapping().identity().device);
    if (fills(options_.mechanism.value_or(Mechanism::populate))) conditions.latency = file.measure_latency();
    return conditions;
  }

  void choose_plans() {
    std::uint64_t size_of_all = 0;
    for (const auto& file : files_) size_of_all += file.mapping().identity().size;
    std::map<std::uint64_t, Conditions> devices;  // measured once
    threads_ = most_threads_ = UINT_MAX;
    most_ = UINT64_MAX;
    std::uint64_t done = 0;
    for (auto& file : files_) {
      Conditions conditions;  // where nothing is missing, nothing has to be decided, and the system's files stay unread
      if (file.missing() != 0) {
        const auto [device, is_new] = devices.try_emplace(file.mapping().identity().device);
        if (is_new) device->second = measured_conditions(file);
        conditions = device->second;
      }
      conditions.file_size = size_of_all;
      conditions.missing = file.missing();
      conditions.private_copy = file.mapping().mode() == Mode::copy;
      auto plan = choose(conditions, options_);
      threads_ = std::min(threads_, plan.threads);
      most_threads_ = std::min(most_threads_, plan.most_threads);
      if (plan.fills()) most_ = std::min(most_, plan.most);
      file.prepare(std::move(plan), conditions);
      done += file.inspector() == nullptr ? file.bytes() - file.missing() : 0;
    }
    progress_done_.store(done, std::memory_order_relaxed);
  }

  void cut_to_budget(std::vector<WarmPiece>& pieces) {
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

  // A slow file system gets requests from twice as many threads, a piece each, as long as that is faster, or from half
  // as many if CPUs are scarce.
  //
  // A fault on a 2 MiB page reads 2 MiB, in requests as large as the file system has. Where these are small, the kernel
  // defers most of them as soon as several threads wait (congestion of FUSE), and then reads page by page: reads with
  // the usual read-ahead are faster there, by many threads. The first pieces show which it is.
  void read_all(std::span<const WarmPiece> pieces) {
    const bool slow = std::ranges::any_of(files_, [](const WarmedFile& file) { return file.plan().slow; });
    const bool adapts = threads_ < most_threads_;
    measures_threads_ = adapts;
    double best = 0;  // bytes per second
    for (bool goes_on = slow; goes_on && !pieces.empty();) {
      const auto part = pieces.first(std::min<std::size_t>(threads_, pieces.size()));
      pieces = pieces.subspan(part.size());
      const auto start = std::chrono::steady_clock::now();
      const auto faults = major_faults_.load();
      if (!visit(part)) return;
      const auto busy = static_cast<double>(busy_ns_.exchange(0));
      const auto cpu_wait = static_cast<double>(cpu_wait_ns_.exchange(0));
      std::uint64_t bytes = 0;
      for (const auto& piece : part) bytes += piece.range.length;
      const bool was_first = best == 0 && !reads_first_;
      if (was_first) reads_first_ = are_requests_small(major_faults_.load() - faults, bytes);
      if (was_first && reads_first_) continue;  // the rate of faults says nothing about reads
      if (!adapts) break;
      const Round round{
          .threads = threads_, .rate = static_cast<double>(bytes) / seconds_since(start), .cpu_wait = cpu_wait / busy};
      threads_ = next_threads(round, best, most_threads_);
      goes_on = threads_ != round.threads;
      best = std::max(best, round.rate);
    }
    measures_threads_ = false;
    (void)visit(pieces);
  }

  // False: an error, or the inspector, has ended it.
  bool visit(std::span<const WarmPiece> pieces) {
    std::atomic<bool> goes_on{true};
    const unsigned ran = for_each_piece(pieces.size(), threads_, [&](std::uint64_t i) noexcept {
      const auto before = os::faults_of_thread();
      const auto waited = measures_threads_ ? os::cpu_wait_of_thread() : 0;
      const auto start = std::chrono::steady_clock::now();
      const bool go_on = visit_piece(pieces[i]);
      if (!go_on) goes_on.store(false, std::memory_order_relaxed);
      const auto after = os::faults_of_thread();
      minor_faults_.fetch_add(after.minor - before.minor, std::memory_order_relaxed);
      major_faults_.fetch_add(after.major - before.major, std::memory_order_relaxed);
      if (measures_threads_) {
        const auto took = (std::chrono::steady_clock::now() - start) / std::chrono::nanoseconds(1);
        busy_ns_ += static_cast<std::uint64_t>(took);
        cpu_wait_ns_ += os::cpu_wait_of_thread() - waited;
      }
      return go_on;
    });
    threads_ran_ = std::max(threads_ran_, ran);
    if (failed_file_ != nullptr) failed_file_->fail(error_.load(), failed_at_);
    return goes_on.load(std::memory_order_relaxed);
  }

  // False: every thread stops.
  bool visit_piece(const WarmPiece& piece) noexcept {
    const auto& file = *piece.file;
    const std::uint64_t end = piece.range.offset + piece.range.length;
    // The disk has written these pages, and no CPU has read them yet. On a virtual machine that gets its memory on
    // first access, that access costs 1 to 2 us a page: better here, beside the reading, than in the caller's first
    // pass (docs/decisions/reading-and-warming.md). Pages that another process brought in were accessed there; an
    // inspector accesses them, too.
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

  // Returns errno.
  int fill(const WarmPiece& piece, ByteRange step, Touch touch) noexcept {
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

  WarmReport finish() {
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
    if (isolated != 0)
      report.reason += "; " + readable(isolated) + " in isolated ranges, read without surrounding pages";
    if (!within_budget_)
      report.reason += "; stopped at " + (options_.budget ? "the budget of " + readable(most_)
                                                          : readable(most_) +
                                                                ", the available memory less what the kernel may read "
                                                                "ahead");
    if (cannot_populate_.load()) {
      report.mechanism = Mechanism::read;
      report.reason += "; pages were read, because this kernel cannot populate mappings";
    }
    if (reads_first_)
      report.reason += "; pages were read before they were mapped, because requests of the file system are small";
    if (cancelled_.load()) report.reason += "; cancelled";
    return report;
  }

  WarmOptions options_;
  std::deque<WarmedFile> files_;  // a deque: pieces point to files
  unsigned threads_ = 0;
  unsigned most_threads_ = 0;
  unsigned threads_ran_ = 0;
  std::uint64_t most_ = 0;     // bytes to bring in
  bool within_budget_ = true;  // false: the budget ends before the work does
  std::uint64_t progress_total_ = 0;
  std::atomic<std::uint64_t> progress_done_{0};
  std::atomic<std::uint64_t> filled_{0};
  std::atomic<std::uint64_t> seen_elsewhere_{0};
  std::atomic<std::uint64_t> minor_faults_{0};
  std::atomic<std::uint64_t> major_faults_{0};
  bool measures_threads_ = false;
  std::atomic<std::uint64_t> busy_ns_{0};           // of all threads
  std::atomic<std::uint64_t> cpu_wait_ns_{0};       // of these, while they were ready, and others had the CPUs
  os::Fd claim_;                                    // of the machine, to warm the first of the files
  ForkMutex claim_mutex_{[this] { claim_ = {}; }};  // a forked child would keep the name as long as it lives
  std::atomic<bool> cannot_populate_{false};
  bool reads_first_ = false;  // read(2), and then populate: the requests of faults are too small
  std::atomic<bool> cancelled_{false};
  // The first step that failed; written by the thread that has set error_.
  std::atomic<int> error_{0};
  const WarmedFile* failed_file_ = nullptr;
  std::uint64_t failed_at_ = 0;
};

}  // namespace

WarmReport warm(const Mapping& mapping, Ranges ranges, const WarmOptions& options) {
  const auto warmer = std::make_unique<Warmer>(options);
  warmer->add(mapping, ranges, options.inspector);
  return warmer->run();
}

// The thread shares its ownership: what waits for a server that does not answer can be left behind.
struct WarmJob::State {
  State(std::vector<WarmPart> of, const WarmOptions& options) : parts(std::move(of)), warmer(options) {
    for (const auto& part : parts) warmer.add(*part.mapping, part.ranges, part.inspector);
  }

  static std::shared_ptr<State> start(std::vector<WarmPart> of, const WarmOptions& options) {
    auto state = std::make_shared<State>(std::move(of), options);
    try {
      state->thread = std::thread([state, lowers = options.low_priority] {
        (void)os::name_thread("onecopy-warm");
        if (lowers) (void)os::lower_priority_of_thread();
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
    throw std::invalid_argument(
        "an inspector belongs to one file: set it in each WarmPart instead of the options of the job");
  return WarmJob(State::start(std::move(parts), options));
}

bool WarmJob::done() const { return wait_for(std::chrono::milliseconds(0)); }

Progress WarmJob::progress() const noexcept { return state_->warmer.progress(); }

void WarmJob::cancel() noexcept { state_->warmer.cancel(); }

bool WarmJob::wait_for(std::chrono::milliseconds time) const {
  if (state_->forked())
    throw OsError("wait for the warming of", state_->parts.empty() ? "no files" : state_->parts[0].mapping->path(),
                  ECHILD, "this process was forked while the job was running; the job belongs to the parent");
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
