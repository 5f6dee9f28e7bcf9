#include "page_cache/warmed_file.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "base/clock.hpp"
#include "files/read_error.hpp"
#include "onecopy/base/error.hpp"
#include "onecopy/files/snapshot.hpp"
#include "os/os.hpp"
#include "page_cache/observe.hpp"
#include "page_cache/ranges.hpp"

namespace onecopy {
namespace {

constexpr std::size_t read_size = std::size_t{1} << 20U;

}  // namespace

ByteRange part_at(std::uint64_t at, ByteRange range, std::uint64_t size, std::uint64_t file_offset) {
  const std::uint64_t to_cut = size - (file_offset + at) % size;
  return {at, std::min(to_cut, range.offset + range.length - at)};
}

WarmedFile::WarmedFile(const Mapping& mapping, Ranges ranges, std::shared_ptr<Inspector> inspector)
    : mapping_(mapping),
      inspector_(std::move(inspector)),
      ranges_(whole_pages(ranges, mapping.bytes().size(), mapping.file_offset())) {
  report_.bytes = total_length(ranges_);
}

void WarmedFile::find_missing() {
  expect_bytes(mapping_, ranges_, "warm");
  report_.cached_before = cached_bytes(mapping_, ranges_);
  const bool copied = mapping_.mode() == Mode::copy;
  const bool cached = report_.cached_before == report_.bytes;
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

std::uint64_t WarmedFile::cached_now() const { return cached_bytes(mapping_, ranges_).value_or(0); }

void WarmedFile::find_missing_again() {
  pieces_.clear();
  missing_ = 0;
  const auto before = report_.cached_before;
  find_missing();
  report_.cached_before = before;
}

// A page that the device failed to read stays in the cache, and cachestat counts it like the others. mincore does not,
// but costs far more: it is called for one page in each part of 2 MiB. Where mincore is refused, no page counts as
// unread.
bool WarmedFile::has_unread_pages(ByteRange piece) const noexcept {
  for (std::uint64_t at = piece.offset; at < piece.offset + piece.length; at += os::huge_page) {
    const auto facts = os::cached_by_mincore(mapping_.descriptor(), pages_of(mapping_, {at, 1}));
    if (!facts) return false;
    if (facts.value.cached == 0) return true;
  }
  return false;
}

std::optional<double> WarmedFile::measure_latency() const noexcept {
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
  // A disk that others use as well, or a CPU, may be late once.
  const auto first = std::ranges::find_if(pieces_, is_missing);
  for (const auto offset : {first->range.offset + first->range.length / 2, last->range.offset})
    if (direct && latency >= slow_answer) latency = std::min(latency, measure(offset));
  return latency;
}

void WarmedFile::prepare(Plan plan, const Conditions& conditions) {
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

void WarmedFile::isolate() {
  if (plan_.overshoot == 0) return;
  isolated_ = isolated_ranges(ranges_, mapping_.bytes().size(), plan_.overshoot, plan_.part);
  auto range = isolated_.begin();
  for (auto& piece : pieces_) {
    while (range != isolated_.end() && range->offset + range->length <= piece.range.offset) ++range;
    piece.alone = range != isolated_.end() && range->offset <= piece.range.offset;
  }
}

void WarmedFile::advise_huge() {
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

std::uint64_t WarmedFile::isolated_bytes() const noexcept { return total_length(isolated_); }

void WarmedFile::append_pieces_to(std::vector<WarmPiece>& pieces) {
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

int WarmedFile::populate(ByteRange step, Touch touch) const noexcept {
  const auto pages = pages_of(mapping_, step);
  const int error = os::populate(pages);
  return error == 0 && touch == Touch::yes && os::touch(pages) == EFAULT ? EFAULT : error;
}

int WarmedFile::read(ByteRange step) const noexcept {
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
    if (got.value < part.size()) return EFAULT;  // as populate reports it: the file ends before the mapping
    done += part.size();
  }
  return 0;
}

void WarmedFile::prefetch(ByteRange step) const noexcept {
  const auto pages = file_pages(mapping_, step);
  for (std::uint64_t done = 0; done < pages.length; done += plan_.at_once)
    (void)os::will_need(mapping_.descriptor(), {pages.offset + done, std::min(plan_.at_once, pages.length - done)});
}

WarmReport WarmedFile::finish() {
  if (inspector_) report_.verified = inspector_->finish();
  report_.cached_after = report_.cached_before;
  if (plan_.mechanism == Mechanism::none && !inspector_) return std::move(report_);
  report_.cached_after = cached_bytes(mapping_, ranges_);
  if (const auto here = mapped(mapping_, ranges_); here && here->mapped != 0)
    report_.huge_share = static_cast<double>(here->huge) / static_cast<double>(here->mapped);
  return std::move(report_);
}

void WarmedFile::fail(int error, std::uint64_t at) const {
  expect_bytes(mapping_, ranges_, "warm");
  throw_read_error("warm", mapping_.path(), error == EFAULT ? EIO : error, mapping_.file_offset() + at);
}

}  // namespace onecopy
