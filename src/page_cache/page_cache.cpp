#include "onecopy/page_cache/page_cache.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <thread>

#include "base/clock.hpp"
#include "base/rounding.hpp"
#include "files/writing/nameless.hpp"
#include "onecopy/base/error.hpp"
#include "onecopy/files/available_memory.hpp"
#include "page_cache/cuda.hpp"
#include "page_cache/observe.hpp"
#include "page_cache/ranges.hpp"

namespace onecopy {
namespace {

using Clock = std::chrono::steady_clock;

// The kernel counts whole pages: of the pages at the ends of `range`, only the part inside counts. `counted` is the
// result of `ask` for the range; single pages at the ends are counted again where that matters.
template <class Ask>
std::uint64_t cached_inside(const Mapping& mapping, ByteRange range, std::uint64_t counted, const Ask& ask) {
  const PageSpan pages = file_pages(mapping, range);
  if (counted >= pages.length) return range.length;
  std::uint64_t outside = 0;
  const std::uint64_t slack = pages.length - pages.lead - range.length;
  const auto part_cached = [&](ByteRange part) {
    const auto facts = ask(part);
    return facts && facts.value.cached != 0;
  };
  if (pages.lead != 0 && part_cached({range.offset, 1})) outside += pages.lead;
  if (slack != 0 && part_cached({range.offset + range.length - 1, 1})) outside += slack;
  return counted - std::min(outside, counted);
}

// The cached bytes, range by range; the first refusal ends the query.
template <class Ask>
std::optional<Cached> ask_cache(const Mapping& mapping, std::span<const ByteRange> ranges, Source source,
                                const Ask& ask) {
  std::uint64_t bytes = 0;
  std::uint64_t dirty = 0;
  for (const auto& range : ranges) {
    const auto facts = ask(range);
    if (!facts) return std::nullopt;
    const std::uint64_t inside = cached_inside(mapping, range, facts.value.cached, ask);
    bytes += inside;
    dirty += std::min(facts.value.dirty, inside);
  }
  const bool knows_dirty = source == Source::cachestat;
  return Cached{bytes, knows_dirty ? std::optional(dirty) : std::nullopt, source};
}

// Throws DataLost for a file that lost bytes, before the kernel is called for them.
std::vector<ByteRange> whole_ranges(const Mapping& mapping, Ranges asked, const char* operation) {
  auto ranges = whole_pages(asked, mapping.bytes().size(), mapping.file_offset());
  expect_bytes(mapping, ranges, operation);
  return ranges;
}

// Returns errno of a refusal.
int drop(const Mapping& mapping, std::span<const ByteRange> ranges) noexcept {
  const bool droppable = mapping.mode() == Mode::map && !mapping.private_pages();
  int refusal = 0;
  for (const auto& range : ranges) {
    // Private pages may hold the caller's changes: dropping those would lose them.
    if (droppable) (void)os::drop_mapped(pages_of(mapping, range));
    const auto pages = file_pages(mapping, range);
    const int error = os::drop_cached(mapping.descriptor(), {pages.offset, pages.length});
    refusal = error != 0 ? error : refusal;
  }
  return refusal;
}

std::string evict_reason(const EvictReport& report, const Mapping& mapping, int refusal) {
  if (refusal != 0) return "the kernel refused (errno " + std::to_string(refusal) + ")";
  if (!report.cached_after) return "the kernel does not report how much is cached";
  if (*report.cached_after == 0) return "nothing is cached any more";
  if (mapping.private_pages()) return "pages mapped as private stay until the mapping is closed";
  return "the remaining pages are mapped by another process, locked, or not yet on disk";
}

// The whole 2 MiB of the file that lie inside these ranges.
std::vector<ByteRange> inner_blocks(std::span<const ByteRange> ranges, std::uint64_t file_offset) {
  constexpr std::uint64_t block = os::huge_page;
  std::vector<ByteRange> blocks;
  for (const auto& range : ranges) {
    const std::uint64_t begin = file_offset + range.offset;
    const std::uint64_t first = round_up(begin, block);
    const std::uint64_t end = round_down(begin + range.length, block);
    if (first < end) blocks.push_back({first - file_offset, end - first});
  }
  return blocks;
}

Outcome outcome_of(int error) noexcept {
  if (error == 0) return Outcome::applied;
  return error == ENOSYS ? Outcome::unsupported : Outcome::refused;
}

// The kernel's own scanners hold a page for an instant now and then (EAGAIN).
int collapse_pages(Bytes memory) noexcept {
  constexpr int attempts = 3;
  int error = EAGAIN;
  for (int i = 0; i < attempts && error == EAGAIN; ++i) error = os::collapse(memory);
  return error;
}

std::string collapse_reason(const CollapseReport& report, int refusal) {
  if (report.bytes == 0) return "it contains no complete 2 MiB page";
  if (report.outcome == Outcome::unsupported)
    return "this kernel does not support MADV_COLLAPSE (Linux 6.1), or pages of 2 MiB";
  if (report.outcome == Outcome::applied) return "in 2 MiB pages";
  return "the kernel refused at least a part (errno " + std::to_string(refusal) + ")";
}

// The locked bytes, which are no longer available; 0 for a part of a locked mapping, where they are unknown.
std::uint64_t locked_bytes(const Mapping& mapping, std::span<const ByteRange> ranges) noexcept {
  std::uint64_t locked = 0;
  for (const auto& range : ranges) {
    const auto facts = os::mapped_by_smaps(pages_of(mapping, range));
    locked += facts ? std::min(facts.value.locked, range.length) : 0;
  }
  return locked;
}

}  // namespace

Cached cached(const Mapping& mapping, std::span<const ByteRange> ranges) {
  const int fd = mapping.descriptor();
  if (const auto answer = ask_cache(mapping, ranges, Source::cachestat, [&](ByteRange range) {
        return os::cached_in_file(fd, {mapping.file_offset() + range.offset, range.length});
      }))
    return *answer;
  if (mapping.mode() == Mode::copy) return {};  // mincore asks about the mapping, and this one is private
  if (const auto answer = ask_cache(mapping, ranges, Source::mincore, [&](ByteRange range) {
        return os::cached_by_mincore(fd, pages_of(mapping, range));
      }))
    return *answer;
  return {};
}

bool is_cached(const Mapping& mapping, ByteRange range) noexcept {
  const auto pages = file_pages(mapping, range);
  auto facts = os::cached_in_file(mapping.descriptor(), {pages.offset, pages.length});
  if (!facts && mapping.mode() == Mode::map)
    facts = os::cached_by_mincore(mapping.descriptor(), pages_of(mapping, range));
  return facts && facts.value.cached >= pages.length;
}

os::Result<os::MappedFacts> mapped_memory(Bytes memory) noexcept {
  const auto scanned = os::mapped_here(memory);
  return scanned ? scanned : os::mapped_by_smaps(memory);
}

std::optional<os::MappedFacts> mapped(const Mapping& mapping, std::span<const ByteRange> ranges) {
  os::MappedFacts sum;
  for (const auto& range : ranges) {
    const auto facts = mapped_memory(pages_of(mapping, range));
    if (!facts) return std::nullopt;
    sum.mapped += std::min(facts.value.mapped, range.length);
    sum.huge += std::min(facts.value.huge, range.length);
  }
  return sum;
}

std::optional<std::uint64_t> cached_bytes(const Mapping& mapping, std::span<const ByteRange> ranges) {
  return cached(mapping, ranges).bytes;
}

void expect_bytes(const Mapping& mapping, std::span<const ByteRange> ranges, const char* operation) {
  expect_whole(mapping);
  if (ranges.empty() || mapping.mode() == Mode::copy) return;
  const auto now = os::facts_of(mapping.descriptor());
  const std::uint64_t needed = mapping.file_offset() + ranges.back().offset + ranges.back().length;
  if (!now || now.value.size >= needed) return;
  throw DataLost(
      operation, mapping.path(), EIO,
      concat("the file was truncated to ", now.value.size, " bytes while mapped; bytes up to ", needed, " are needed"),
      now.value.size);
}

Residency residency(const Mapping& mapping, Ranges asked) {
  const auto ranges = whole_ranges(mapping, asked, "get the attributes of");
  Residency answer;
  answer.bytes = total_length(ranges);
  const auto in_cache = cached(mapping, ranges);
  answer.cached = in_cache.bytes;
  answer.dirty = in_cache.dirty;
  answer.source = in_cache.source;
  if (const auto here = mapped(mapping, ranges)) {
    answer.mapped = here->mapped;
    answer.huge = here->huge;
  }
  return answer;
}

PageCache cachestat(int descriptor, std::optional<ByteRange> range) {
  if (range && range->length == 0) return {};
  const auto answer = os::cached_in_file(descriptor, range.value_or(ByteRange{}));
  if (!answer)
    throw OsError(
        "count the cached pages of", "descriptor " + std::to_string(descriptor), answer.error,
        answer.error == EOPNOTSUPP ? "its pages may belong to a file on another file system (overlayfs)" : "");
  return {answer.value.cached, answer.value.dirty, answer.value.evicted, answer.value.recently_evicted};
}

MappedPages mapped_in(std::uint64_t process, ByteRange addresses) {
  const auto answer = os::mapped_there(process, addresses);
  if (!answer) throw OsError("read the page tables of", "process " + std::to_string(process), answer.error);
  return {answer.value.mapped, answer.value.huge};
}

EvictReport evict(const Mapping& mapping, Ranges asked) {
  const auto start = Clock::now();
  const auto ranges = whole_ranges(mapping, asked, "evict");
  EvictReport report;
  report.bytes = total_length(ranges);
  report.cached_before = cached_bytes(mapping, ranges);
  if (is_in_memory(mapping.descriptor())) {
    report.cached_after = report.cached_before;
    report.seconds = seconds_since(start);
    report.reason = "refused, because the file is only in memory, and could not be read again from a disk";
    return report;
  }
  // Dirty pages cannot be dropped. On overlayfs fsync leaves those of a lower layer as they are.
  if (os::write_back(mapping.descriptor()) != 0) (void)os::sync_file(mapping.descriptor());
  int refusal = 0;
  // A page stays that is being read, such as ahead of the last access, or that the kernel's own scanners (DAMON,
  // khugepaged) hold for an instant: ask again, and then after a while.
  constexpr std::array pauses{0, 0, 1, 2, 4};  // ms
  for (const int pause : pauses) {
    if (pause != 0) std::this_thread::sleep_for(std::chrono::milliseconds(pause));
    refusal = drop(mapping, ranges);
    report.cached_after = cached_bytes(mapping, ranges);
    if (report.cached_after.value_or(0) == 0) break;
  }
  report.seconds = seconds_since(start);
  report.reason = evict_reason(report, mapping, refusal);
  return report;
}

CollapseReport collapse(const Mapping& mapping, Ranges asked) {
  const auto start = Clock::now();
  const auto ranges = inner_blocks(whole_ranges(mapping, asked, "collapse"), mapping.file_offset());
  CollapseReport report;
  report.bytes = total_length(ranges);
  int refusal = report.bytes == 0 ? EINVAL : 0;
  for (const auto& range : ranges) {
    const int error = collapse_pages(pages_of(mapping, range));
    refusal = error != 0 ? error : refusal;
  }
  report.outcome = outcome_of(refusal);
  if (const auto here = mapped(mapping, ranges)) report.huge = here->huge;
  report.seconds = seconds_since(start);
  report.reason = collapse_reason(report, refusal);
  return report;
}

Outcome advise_random(const Mapping& mapping, Ranges asked) {
  if (mapping.mode() == Mode::copy) return Outcome::unsupported;
  auto outcome = Outcome::applied;
  for (const auto& range : whole_ranges(mapping, asked, "advise on")) {
    const auto answer = os::advise_random(pages_of(mapping, range));
    if (answer != Outcome::applied) outcome = answer;
  }
  return outcome;
}

PinReport pin(const Mapping& mapping, Ranges asked) {
  const auto ranges = whole_ranges(mapping, asked, "pin");
  PinReport report;
  report.bytes = total_length(ranges);
  if (mapping.private_pages() && mapping.mode() == Mode::map) {
    report.outcome = Outcome::refused;
    report.reason = "locking the pages of a private mapping would copy all of them";
    return report;
  }
  // Locked pages cannot be dropped: beyond a control group's limit, the kernel would kill processes.
  if (const auto memory = available_memory();
      memory && !fits(report.bytes, *memory) && !fits(report.bytes - locked_bytes(mapping, ranges), *memory)) {
    report.outcome = Outcome::refused;
    report.reason = shortage(report.bytes, *memory);
    return report;
  }
  report.outcome = Outcome::applied;
  report.reason = "locked into memory until unpinned or closed";
  for (const auto& range : ranges) {
    const int error = os::lock_memory(pages_of(mapping, range));
    if (error == 0) {
      report.pinned += range.length;
      continue;
    }
    report.outcome = outcome_of(error);
    report.reason = error == ENOMEM || error == EPERM || error == EAGAIN
                        ? "the limit on locked memory is exceeded (ulimit -l, RLIMIT_MEMLOCK)"
                        : "the kernel refused (errno " + std::to_string(error) + ")";
    break;
  }
  return report;
}

void unpin(const Mapping& mapping, Ranges asked) {
  for (const auto& range : whole_pages(asked, mapping.bytes().size(), mapping.file_offset()))
    (void)os::unlock_memory(pages_of(mapping, range));
}

void register_with_cuda(const Mapping& mapping, Ranges asked, bool only_tried) {
  const auto ranges = whole_ranges(mapping, asked, "register");
  const auto system = os::file_system_of(mapping.descriptor());
  const bool is_tried =
      system && (system.value.storage == os::Storage::memory || system.value.name == std::string_view("ext4"));
  if (only_tried && mapping.mode() == Mode::map && !is_tried)
    throw OsError("register", mapping.path(), EOPNOTSUPP, "this has not been tested on its file system");
  if (mapping.private_pages() && mapping.mode() == Mode::map)
    throw OsError("register", mapping.path(), EINVAL, "registering copy-on-write pages would copy all of them");
  std::vector<Bytes> pages;
  for (const auto& range : ranges) {
    const PageSpan span = file_pages(mapping, range);
    pages.emplace_back(pages_of(mapping, range).data(), static_cast<std::size_t>(span.length));
  }
  mapping.keep(std::make_unique<CudaPages>(pages, mapping.path()));
}

}  // namespace onecopy
