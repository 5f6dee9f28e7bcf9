#include "scratch/written_pages.hpp"

#include <algorithm>

#include "files/page_span.hpp"

namespace onecopy {
namespace {

constexpr std::uint64_t uncapped_piece = std::uint64_t{16} << 20U;
constexpr std::uint64_t stretch = std::uint64_t{4} << 20U;  // multiple of the largest folio, which would otherwise stay
constexpr std::uint64_t largest_by_mincore = std::uint64_t{8}
                                             << 30U;  // without cachestat a query of more takes too long
constexpr std::uint64_t stretches_at_once = 256;      // queried together, before each one is

ByteRange whole_pages_of(ByteRange range) noexcept {
  const PageSpan span = page_span(range, os::page_size());
  return {span.offset, span.length};
}

}  // namespace

WrittenPages::WrittenPages(MappedData data, std::optional<std::uint64_t> cap) : data_(data) {
  if (cap && !data.in_memory) queue_ = std::make_unique<WriteQueue>(*cap);
}

std::uint64_t WrittenPages::piece_size() const noexcept { return queue_ ? queue_->part_size() : uncapped_piece; }

int WrittenPages::make_room(ByteRange piece) {
  if (!queue_) return 0;
  const std::scoped_lock lock(mutex_);
  const ByteRange pages = whole_pages_of(piece);
  if (until_look_ == 0)
    if (const int error = look(); error != 0) return error;
  until_look_ -= std::min(until_look_, pages.length);
  queue_->touch({pages.offset, std::min(pages.length, queue_->part_size())});
  while (const auto part = queue_->next_to_begin()) (void)os::start_writeback(data_.fd, queue_->range_of(*part));
  while (const auto part = queue_->next_to_drop())
    if (const int error = write_and_drop(queue_->range_of(*part)); error != 0) return error;
  return 0;
}

// Pages that were written past the queue leave in the order of the file; a small rest may stay, and counts. If they
// cannot leave (other processes map them), the next attempt is later.
int WrittenPages::look() {
  const std::uint64_t enough = queue_->cap() / 8;
  until_look_ = enough;
  const auto besides = [this] {
    const std::uint64_t cached = cached_in(whole());
    return cached - std::min(cached, queue_->held());
  };
  std::uint64_t left = besides();
  const std::uint64_t end = data_.head + data_.memory.size();
  constexpr std::uint64_t step = stretch * stretches_at_once;
  for (std::uint64_t at = 0; at < end && left > enough; at += step) {
    if (cached_in({at, step}) == 0) continue;
    for (std::uint64_t part = at; part < std::min(at + step, end) && left > enough; part += stretch) {
      const std::uint64_t before = cached_in({part, stretch});
      if (before == 0) continue;
      if (const int error = sweep({part, stretch}); error != 0) return error;
      left -= std::min(left, before - std::min(before, cached_in({part, stretch})));
      if (left <= enough) left = besides();  // some of what left was ours, and was not counted
    }
  }
  if (left > enough) until_look_ = queue_->cap();
  queue_->set_besides(std::min(left, queue_->cap() / 2));
  return 0;
}

int WrittenPages::sweep(ByteRange range) {
  const std::uint64_t size = queue_->part_size();
  for (std::uint64_t part = range.offset / size; part * size < range.offset + range.length; ++part)
    queue_->forget(part);
  return write_and_drop(range);
}

std::uint64_t WrittenPages::cached_in(ByteRange range) const noexcept {
  const std::uint64_t begin = std::max(range.offset, data_.head);
  const std::uint64_t end = std::min(range.offset + range.length, data_.head + data_.memory.size());
  if (begin >= end) return 0;
  if (data_.memory.size() > largest_by_mincore) {
    const auto answer = os::cached_in_file(data_.fd, {begin, end - begin});
    return answer ? answer.value.cached : 0;
  }
  return cached({begin, end - begin}).bytes.value_or(0);
}

int WrittenPages::drop(ByteRange range) {
  const ByteRange pages = whole_pages_of(range);
  if (const int error = write_and_drop(pages); error != 0) return error;
  const std::scoped_lock lock(mutex_);
  if (queue_) {
    const std::uint64_t size = queue_->part_size();
    for (std::uint64_t at = (pages.offset + size - 1) / size; (at + 1) * size <= pages.offset + pages.length; ++at)
      queue_->forget(at);
  }
  // A large page that crosses the end of the range dropped before stayed then, and can be dropped now: otherwise those
  // of rows that are released one after the other would accumulate.
  const std::uint64_t end_before = dropped_.offset + dropped_.length;
  const std::uint64_t end = pages.offset + pages.length;
  if (pages.offset < dropped_.offset || pages.offset > end_before || end <= end_before) {
    dropped_ = pages;
    return 0;
  }
  dropped_.length = end - dropped_.offset;
  const std::uint64_t begin = std::max(dropped_.offset, pages.offset - std::min(pages.offset, stretch));
  if (!data_.in_memory) (void)os::drop_cached(data_.fd, {begin, std::min(end, pages.offset + stretch) - begin});
  return 0;
}

// A page that is written between the two steps is dirty again, and the kernel keeps it: no data is lost here.
int WrittenPages::write_and_drop(ByteRange range) const noexcept {
  if (!data_.in_memory)
    if (const int error = os::write_out(data_.fd, range); error != 0) return error;
  const std::uint64_t last = std::min(range.offset + range.length, data_.head + data_.memory.size());
  const std::uint64_t begin = std::max(range.offset, data_.head) - data_.head;
  const std::uint64_t end = std::max(last, data_.head) - data_.head;
  if (begin < end) (void)os::drop_mapped(data_.memory.subspan(begin, end - begin));
  if (!data_.in_memory) (void)os::drop_cached(data_.fd, range);
  return 0;
}

Cached WrittenPages::cached(ByteRange range) const noexcept {
  const auto answer = os::cached_in_file(data_.fd, range);
  if (answer) return {answer.value.cached, answer.value.dirty, Source::cachestat};
  const auto seen = os::cached_by_mincore(data_.fd, data_.memory.subspan(range.offset - data_.head, range.length));
  if (seen) return {seen.value.cached, std::nullopt, Source::mincore};
  return {};
}

}  // namespace onecopy
