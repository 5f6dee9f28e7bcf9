#include "page_cache/warmer.hpp"

#include <algorithm>
#include <climits>
#include <map>

#include "onecopy/base/pieces.hpp"
#include "onecopy/files/available_memory.hpp"
#include "os/os.hpp"

namespace onecopy {
namespace {

// After each step a thread adds to the progress, and stops if the warming was cancelled.
constexpr std::uint64_t step_size = std::uint64_t{4} << 20U;

// What the machine has, for the files of one warming: available memory is read once, and read-ahead once per device.
class Machine {
 public:
  Conditions conditions_of(const WarmedFile& file, std::uint64_t size_of_all) {
    Conditions conditions;
    conditions.file_size = size_of_all;
    conditions.missing = file.missing();
    conditions.private_copy = file.mapping().mode() == Mode::copy;
    if (conditions.missing == 0) return conditions;  // nothing to decide: the system's files stay unread
    if (!is_read_) available_ = available_memory();
    is_read_ = true;
    if (available_) conditions.available = available_->bytes;
    const auto device = file.mapping().identity().device;
    const auto ahead = read_ahead_.try_emplace(device).first;
    if (!ahead->second) ahead->second = os::read_ahead(device);
    if (*ahead->second) conditions.read_ahead = ahead->second->value;
    return conditions;
  }

 private:
  bool is_read_ = false;
  std::optional<AvailableMemory> available_;
  std::map<std::uint64_t, std::optional<os::Result<std::uint64_t>>> read_ahead_;
};

}  // namespace

void Warmer::add(const Mapping& mapping, Ranges ranges, std::shared_ptr<Inspector> inspector) {
  progress_total_ += files_.emplace_back(mapping, ranges, std::move(inspector)).bytes();
}

WarmReport Warmer::run() {
  const auto start = std::chrono::steady_clock::now();
  for (auto& file : files_) file.find_missing();
  choose_plans();
  std::vector<WarmPiece> pieces;
  for (auto& file : files_) file.append_pieces_to(pieces);
  cut_to_budget(pieces);
  visit(pieces);
  auto report = finish();
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (report.seconds > 0)
    report.gib_per_s = static_cast<double>(report.filled) / static_cast<double>(1U << 30U) / report.seconds;
  return report;
}

void Warmer::choose_plans() {
  std::uint64_t size_of_all = 0;
  for (const auto& file : files_) size_of_all += file.mapping().identity().size;
  Machine machine;
  threads_ = UINT_MAX;
  most_ = UINT64_MAX;
  std::uint64_t done = 0;
  for (auto& file : files_) {
    auto plan = choose(machine.conditions_of(file, size_of_all), options_);
    threads_ = std::min(threads_, plan.threads);
    if (plan.fills()) most_ = std::min(most_, plan.most);
    file.prepare(std::move(plan));
    done += file.inspector() == nullptr ? file.bytes() - file.missing() : 0;
  }
  progress_done_.store(done, std::memory_order_relaxed);
}

void Warmer::cut_to_budget(std::vector<WarmPiece>& pieces) {
  std::uint64_t left = most_ / os::page_size() * os::page_size();
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

void Warmer::visit(std::span<const WarmPiece> pieces) {
  threads_ = for_each_piece(pieces.size(), threads_, [&](std::uint64_t i) noexcept {
    const auto before = os::faults_of_thread();
    const bool go_on = visit_piece(pieces[i]);
    const auto after = os::faults_of_thread();
    minor_faults_.fetch_add(after.minor - before.minor, std::memory_order_relaxed);
    major_faults_.fetch_add(after.major - before.major, std::memory_order_relaxed);
    return go_on;
  });
  if (failed_file_ != nullptr) failed_file_->fail(error_.load(), failed_at_);
}

bool Warmer::visit_piece(const WarmPiece& piece) noexcept {
  const auto& file = *piece.file;
  const std::uint64_t end = piece.range.offset + piece.range.length;
  // The disk has written these pages, and no CPU has read them yet. On a virtual machine that gets its memory on first
  // access, that access costs 1 to 2 us a page: better here, beside the reading, than in the caller's first pass
  // (docs/decisions/reading-and-warming.md). Pages that another process brought in were accessed there; an inspector
  // accesses them, too.
  const bool is_first = piece.missing && file.inspector() == nullptr && !file.is_cached(piece.range);
  const Touch touch = is_first ? Touch::yes : Touch::no;
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
  }
  auto report = total(reports);
  report.filled = filled_.load();
  report.minor_faults = minor_faults_.load();
  report.major_faults = major_faults_.load();
  report.threads = files_.empty() ? 0 : threads_;
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
  if (cancelled_.load()) report.reason += "; cancelled";
  return report;
}

WarmReport warm(const Mapping& mapping, Ranges ranges, const WarmOptions& options) {
  Warmer warmer(options);
  warmer.add(mapping, ranges, options.inspector);
  return warmer.run();
}

}  // namespace onecopy
