#include "onecopy/residency/warm.hpp"

#include <algorithm>
#include <atomic>
#include <iterator>
#include <utility>
#include <vector>

#include "files/read_error.hpp"
#include "onecopy/base/error.hpp"
#include "onecopy/base/pieces.hpp"
#include "onecopy/files/available_memory.hpp"
#include "os/os.hpp"
#include "residency/observe.hpp"
#include "residency/plan.hpp"
#include "residency/ranges.hpp"
#include "residency/warmer.hpp"

namespace onecopy {
namespace {

// One thread's piece. Large, because the read-ahead state belongs to the open file and threads that work close to each
// other spoil it: with 8 threads and pieces of 8 MiB 93 % ended in huge pages, with 32 MiB 99.7 to 100 %, 0.52 s
// instead of 0.61 (1.5 GiB cold, medians of 5).
constexpr std::uint64_t piece_size = std::uint64_t{32} << 20U;
// Between two steps a thread looks whether it was cancelled, and tells how far it is.
constexpr std::uint64_t step_size = std::uint64_t{4} << 20U;
constexpr std::size_t read_size = std::size_t{1} << 20U;

// The part of `range` from `at` on, up to the next multiple of `size` in the *file*: no 2 MiB page is worked on twice.
ByteRange part_at(std::uint64_t at, ByteRange range, std::uint64_t size, std::uint64_t file_offset) {
  const std::uint64_t to_cut = size - (file_offset + at) % size;
  return {at, std::min(to_cut, range.offset + range.length - at)};
}

bool is_cached(const Mapping& mapping, ByteRange piece) {
  const auto pages = file_pages(mapping, piece);
  const auto facts = os::cached_in_file(mapping.descriptor(), {pages.offset, pages.length});
  return facts && facts.value.cached >= pages.length;
}

// A page that the device failed to read stays in the cache, and cachestat counts it like the others. mincore does not,
// but costs far more: it is asked of one page in each part of 2 MiB. Where it may not be asked, nothing is known of it.
bool is_unread(const Mapping& mapping, ByteRange piece) {
  for (std::uint64_t at = piece.offset; at < piece.offset + piece.length; at += os::huge_page) {
    const auto facts = os::cached_by_mincore(mapping.descriptor(), pages_of(mapping, {at, 1}));
    if (!facts) return false;
    if (facts.value.cached == 0) return true;
  }
  return false;
}

Conditions observe(const Mapping& mapping, std::uint64_t whole, std::uint64_t missing) {
  Conditions conditions;
  conditions.file_size = std::max(mapping.identity().size, whole);
  conditions.missing = missing;
  conditions.private_copy = mapping.mode() == Mode::copy;
  if (missing == 0) return conditions;  // nothing to decide: leave the machine's files unread
  if (const auto memory = available_memory()) conditions.available = memory->bytes;
  if (const auto ahead = os::read_ahead(mapping.identity().device)) conditions.read_ahead = ahead.value;
  return conditions;
}

}  // namespace

Warmer::Warmer(const Mapping& mapping, std::span<const ByteRange> ranges, WarmOptions options, std::uint64_t whole)
    : mapping_(mapping),
      options_(std::move(options)),
      ranges_(whole_pages(ranges, mapping.bytes().size(), mapping.file_offset())),
      whole_(whole) {
  progress_total_.store(total_length(ranges_), std::memory_order_relaxed);
}

WarmReport Warmer::run(std::uint64_t taken) {
  const auto start = std::chrono::steady_clock::now();
  report_.bytes = total_length(ranges_);
  expect_bytes(mapping_, ranges_, "warm");
  report_.cached_before = cached_bytes(mapping_, ranges_);
  auto pieces = cut();
  std::uint64_t missing = 0;
  for (const auto& piece : pieces) missing += piece.missing ? piece.range.length : 0;
  auto conditions = observe(mapping_, whole_, missing);
  conditions.taken = taken;
  const auto plan = choose(conditions, options_);
  report_.reason = plan.reason;
  report_.mechanism = plan.mechanism;
  progress_done_.store(options_.inspector ? 0 : report_.bytes - missing, std::memory_order_relaxed);
  if (plan.fills()) set_apart(pieces, plan);
  if (plan.huge) advise_huge();
  if (!alone_.empty())
    report_.reason += "; " + readable(total_length(alone_)) + " read without what lies around, which is not wanted";
  report_.complete = plan.fills() ? cut_to_budget(pieces, plan.most) : plan.nothing_missing;
  if (!plan.fills()) std::ranges::for_each(pieces, [](Piece& piece) { piece.missing = false; });
  if (!options_.inspector) std::erase_if(pieces, [](const Piece& piece) { return !piece.missing; });
  visit(pieces, plan);
  if (options_.inspector) report_.verified = options_.inspector->finish();
  finish(plan);
  report_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (report_.seconds > 0)
    report_.gib_per_s = static_cast<double>(report_.filled) / static_cast<double>(1U << 30U) / report_.seconds;
  return report_;
}

std::vector<Warmer::Piece> Warmer::cut() const {
  const bool whole = mapping_.mode() == Mode::copy;
  const bool cached = report_.cached_before == report_.bytes;
  if (whole && !options_.inspector) return {};
  std::vector<Piece> pieces;
  for (const auto& range : ranges_) {
    for (std::uint64_t at = range.offset; at < range.offset + range.length; at += pieces.back().range.length) {
      const auto piece = part_at(at, range, piece_size, mapping_.file_offset());
      const bool missing = !whole && ((!cached && !is_cached(mapping_, piece)) || is_unread(mapping_, piece));
      pieces.push_back({piece, missing});
    }
  }
  return pieces;
}

void Warmer::set_apart(std::vector<Piece>& pieces, const Plan& plan) {
  if (plan.overshoot == 0) return;
  at_once_ = plan.at_once;
  alone_ = lonely(ranges_, mapping_.bytes().size(), plan.overshoot, plan.part);
  auto range = alone_.begin();
  for (auto& piece : pieces) {
    while (range != alone_.end() && range->offset + range->length <= piece.range.offset) ++range;
    piece.alone = range != alone_.end() && range->offset <= piece.range.offset;
  }
}

void Warmer::advise_huge() {
  std::vector<ByteRange> together;
  std::ranges::set_difference(ranges_, alone_, std::back_inserter(together), {}, &ByteRange::offset,
                              &ByteRange::offset);
  if (together.empty() && !alone_.empty()) {
    report_.reason += ", but not for so little";
    return;
  }
  const auto parts = huge_parts(together, mapping_.bytes().size(), mapping_.file_offset());
  if (parts.empty()) {
    report_.reason += ", but less than half of each is wanted";
    return;
  }
  auto worst = Outcome::applied;
  for (const auto& part : parts) {
    const auto outcome = os::advise_huge(pages_of(mapping_, part));
    if (outcome != Outcome::applied) worst = outcome;
  }
  report_.huge = worst;
  if (worst != Outcome::applied) report_.reason += "; the kernel says of 2 MiB pages: " + std::string(to_string(worst));
}

// False when the budget ends before the work does.
bool Warmer::cut_to_budget(std::vector<Piece>& pieces, std::uint64_t most) {
  std::uint64_t left = most / os::page_size() * os::page_size();
  const auto over = std::ranges::find_if(pieces, [&](const Piece& piece) {
    if (!piece.missing) return false;
    if (piece.range.length > left) return true;
    left -= piece.range.length;
    return false;
  });
  if (over == pieces.end()) return true;
  over->range.length = left;
  pieces.erase(left == 0 ? over : over + 1, pieces.end());
  report_.reason += options_.budget ? "; stopped at the budget of " + readable(most)
                                    : "; stopped at " + readable(most) +
                                          ", the memory that may be used less what the " + "kernel may read ahead";
  return false;
}

void Warmer::visit(std::span<const Piece> pieces, const Plan& plan) {
  mechanism_.store(plan.mechanism, std::memory_order_relaxed);
  report_.threads = for_each_piece(pieces.size(), plan.threads, [&](std::uint64_t i) noexcept {
    const auto before = os::faults_of_thread();
    const bool go_on = visit_piece(pieces[i]);
    const auto after = os::faults_of_thread();
    minor_faults_.fetch_add(after.minor - before.minor, std::memory_order_relaxed);
    major_faults_.fetch_add(after.major - before.major, std::memory_order_relaxed);
    return go_on;
  });
  report_.mechanism = mechanism_.load();
  report_.filled = filled_.load();
  report_.minor_faults = minor_faults_.load();
  report_.major_faults = major_faults_.load();
  if (report_.mechanism != plan.mechanism) report_.reason += "; this kernel cannot populate, so it was read";
  if (error_.load() != 0) fail();
}

bool Warmer::visit_piece(Piece piece) noexcept {
  const std::uint64_t end = piece.range.offset + piece.range.length;
  // The disk writes these pages, no processor has looked at them yet. On a virtual machine whose host backs memory on
  // first access that look costs 1 to 2 us a page: better here, beside the reading, than in the caller's first pass
  // (docs/decisions/0007). What another process has brought in meanwhile, it has looked at; so does an inspector.
  const bool look = piece.missing && !options_.inspector && !is_cached(mapping_, piece.range);
  for (std::uint64_t at = piece.range.offset; at < end && !cancelled_.load(std::memory_order_relaxed);) {
    const auto step = part_at(at, piece.range, step_size, mapping_.file_offset());
    if (piece.missing && piece.alone) begin_to_read(step);
    if (const int error = piece.missing ? fill_step(step, look) : 0; error != 0) {
      int none = 0;
      if (error_.compare_exchange_strong(none, error)) failed_at_.store(at);
      return false;
    }
    if (piece.missing) filled_.fetch_add(step.length, std::memory_order_relaxed);
    if (options_.inspector && !options_.inspector->inspect(step)) return false;
    progress_done_.fetch_add(step.length, std::memory_order_relaxed);
    at += step.length;
  }
  return !cancelled_.load(std::memory_order_relaxed);
}

// The pages are then on their way, and a fault waits for its own instead of reading around itself.
void Warmer::begin_to_read(ByteRange step) const noexcept {
  const auto pages = file_pages(mapping_, step);
  for (std::uint64_t done = 0; done < pages.length; done += at_once_)
    (void)os::will_need(mapping_.descriptor(), {pages.offset + done, std::min(at_once_, pages.length - done)});
}

int Warmer::fill_step(ByteRange step, bool look) noexcept {
  if (mechanism_.load(std::memory_order_relaxed) == Mechanism::populate) {
    const auto pages = pages_of(mapping_, step);
    const int error = os::populate(pages);
    if (error == 0) return look && os::touch(pages) == EFAULT ? EFAULT : 0;
    if (error != ENOSYS) return error;
    mechanism_.store(Mechanism::read, std::memory_order_relaxed);
  }
  return read_step(step);
}

int Warmer::read_step(ByteRange step) noexcept {
  thread_local std::vector<std::byte> scratch;
  try {
    scratch.resize(read_size);
  } catch (const std::bad_alloc&) {
    return ENOMEM;
  }
  for (std::uint64_t done = 0; done < step.length;) {
    const auto part = std::span(scratch).first(std::min<std::uint64_t>(read_size, step.length - done));
    const auto got = os::read_at(mapping_.descriptor(), part, mapping_.file_offset() + step.offset + done);
    if (!got) return got.error;
    if (got.value < part.size()) return EFAULT;  // the same words as populate's: the file ends before the mapping
    done += part.size();
  }
  return 0;
}

void Warmer::finish(const Plan& plan) {
  report_.cached_after = report_.cached_before;
  if (plan.mechanism == Mechanism::none && !options_.inspector) return;
  report_.cached_after = cached_bytes(mapping_, ranges_);
  if (const auto here = mapped(mapping_, ranges_); here && here->mapped != 0)
    report_.huge_share = static_cast<double>(here->huge) / static_cast<double>(here->mapped);
  if (cancelled_.load()) {
    report_.reason += "; cancelled";
    report_.complete = false;
  }
  // Where the kernel does not tell what is cached, having populated all of it does.
  if (!report_.cached_after && report_.complete && report_.mechanism == Mechanism::populate)
    report_.cached_after = report_.bytes;
}

void Warmer::fail() const {
  expect_bytes(mapping_, ranges_, "warm");
  const int error = error_.load() == EFAULT ? EIO : error_.load();  // as madvise says it
  throw_read_error("warm", mapping_.path(), error, mapping_.file_offset() + failed_at_.load());
}

WarmReport warm(const Mapping& mapping, std::span<const ByteRange> ranges, const WarmOptions& options) {
  return Warmer(mapping, ranges, options).run();
}

}  // namespace onecopy
