#include "onecopy/residency/residency.hpp"

#include <chrono>

#include "onecopy/base/error.hpp"
#include "residency/observe.hpp"
#include "residency/ranges.hpp"

namespace onecopy {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

std::vector<ByteRange> pages_of_all(const Mapping& mapping, std::span<const ByteRange> ranges) {
  return whole_pages(ranges, mapping.bytes().size(), mapping.file_offset());
}

// What the page cache holds, asked range by range; the first refusal ends it.
template <class Ask>
std::optional<Cached> ask_cache(std::span<const ByteRange> ranges, Source source, bool knows_dirty, const Ask& ask) {
  Cached sum{0, {}, source};
  if (knows_dirty) sum.dirty = 0;
  for (const auto& range : ranges) {
    const auto facts = ask(range);
    if (!facts) return std::nullopt;
    *sum.bytes += facts.value.cached;
    if (sum.dirty) *sum.dirty += facts.value.dirty;
  }
  return sum;
}

std::string evict_reason(const EvictReport& report, bool private_pages, int refusal) {
  if (refusal != 0) return "the kernel refused (errno " + std::to_string(refusal) + ")";
  if (!report.cached_after) return "the kernel does not tell what is cached";
  if (*report.cached_after == 0) return "nothing of it is cached any more";
  if (private_pages) return "pages mapped as private stay until the mapping is closed";
  return "what stays is mapped by another process, locked, or not yet on the disk";
}

}  // namespace

Cached cached(const Mapping& mapping, std::span<const ByteRange> ranges) {
  const int fd = mapping.descriptor();
  if (const auto told = ask_cache(ranges, Source::cachestat, true, [&](ByteRange range) {
        return os::cached_in_file(fd, {mapping.file_offset() + range.offset, range.length});
      }))
    return *told;
  if (mapping.mode() == Mode::copy) return {};  // the next two ask about the mapping, and this one is private
  if (const auto told = ask_cache(ranges, Source::mincore, false,
                                  [&](ByteRange range) { return os::cached_by_mincore(fd, pages_of(mapping, range)); }))
    return *told;
  if (const auto facts = mapped(mapping, ranges)) return {facts->mapped, {}, Source::page_tables};
  return {};
}

std::optional<os::MappedFacts> mapped(const Mapping& mapping, std::span<const ByteRange> ranges) {
  os::MappedFacts sum;
  for (const auto& range : ranges) {
    const auto facts = os::mapped_here(pages_of(mapping, range));
    if (!facts) return std::nullopt;
    sum.mapped += facts.value.mapped;
    sum.huge += facts.value.huge;
  }
  return sum;
}

Residency residency(const Mapping& mapping, std::span<const ByteRange> asked) {
  const auto ranges = pages_of_all(mapping, asked);
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

EvictReport evict(const Mapping& mapping, std::span<const ByteRange> asked) {
  const auto start = Clock::now();
  const auto ranges = pages_of_all(mapping, asked);
  const bool droppable = mapping.mode() == Mode::map && !mapping.private_pages();
  EvictReport report;
  report.bytes = total_length(ranges);
  report.cached_before = cached(mapping, ranges).bytes;
  (void)os::sync_file(mapping.descriptor());  // dirty pages cannot be dropped
  int refusal = 0;
  for (const auto& range : ranges) {
    // Private pages may hold the caller's changes: dropping those would lose them.
    if (droppable) (void)os::drop_mapped(pages_of(mapping, range));
    const auto pages = page_span({mapping.file_offset() + range.offset, range.length}, os::page_size());
    const int error = os::drop_cached(mapping.descriptor(), {pages.offset, pages.length});
    refusal = error != 0 ? error : refusal;
  }
  report.cached_after = cached(mapping, ranges).bytes;
  report.seconds = seconds_since(start);
  report.reason = evict_reason(report, mapping.private_pages(), refusal);
  return report;
}

PinReport pin(const Mapping& mapping, std::span<const ByteRange> asked) {
  const auto ranges = pages_of_all(mapping, asked);
  PinReport report;
  report.bytes = total_length(ranges);
  report.outcome = Outcome::applied;
  report.reason = "locked into memory until unpinned or closed";
  for (const auto& range : ranges) {
    const int error = os::lock_memory(pages_of(mapping, range));
    if (error == 0) {
      report.pinned += range.length;
      continue;
    }
    report.outcome = error == ENOSYS ? Outcome::unsupported : Outcome::refused;
    report.reason = error == ENOMEM || error == EPERM || error == EAGAIN
                        ? "over the limit on locked memory (ulimit -l, RLIMIT_MEMLOCK)"
                        : "the kernel refused (errno " + std::to_string(error) + ")";
    break;
  }
  return report;
}

void unpin(const Mapping& mapping, std::span<const ByteRange> asked) {
  for (const auto& range : pages_of_all(mapping, asked)) (void)os::unlock_memory(pages_of(mapping, range));
}

}  // namespace onecopy
