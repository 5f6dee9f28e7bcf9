#include "onecopy/scratch/scratch_file.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "files/addresses.hpp"
#include "files/fork_mutex.hpp"
#include "files/page_span.hpp"
#include "files/writing/target.hpp"
#include "onecopy/base/error.hpp"
#include "onecopy/page_cache/warm.hpp"
#include "os/os.hpp"
#include "page_cache/observe.hpp"
#include "page_cache/ranges.hpp"
#include "scratch/direct_writes.hpp"
#include "scratch/place.hpp"
#include "scratch/written_pages.hpp"

namespace onecopy {
namespace {

constexpr std::uint64_t largest_file = UINT64_MAX / 2;

std::uint64_t checked_size(std::uint64_t size, const ScratchOptions& options) {
  const auto refuse = [&](int error, std::string detail) {
    throw OsError("make a scratch file", options.name, error, std::move(detail));
  };
  if (options.head % os::page_size() != 0) refuse(EINVAL, "the head must be a multiple of the page size");
  if (!in_bounds(largest_file, options.head, size)) refuse(EFBIG, "it would exceed the maximum size of a file");
  if (options.max_resident && *options.max_resident < ScratchFile::least_resident)
    refuse(EINVAL, concat("max_resident must be at least ", ScratchFile::least_resident, " bytes"));
  return size;
}

}  // namespace

struct ScratchFile::State {
  State(std::uint64_t bytes, const ScratchOptions& asked)
      : options(asked),
        size(checked_size(bytes, asked)),
        file(create_placed(asked.head + std::max<std::uint64_t>(size, 1), asked)),
        mapped(map()),
        pages({file.fd.get(), mapped, options.head, file.in_memory}, options.max_resident),
        direct(file.fd.get()) {}

  // A file of 0 bytes reserves one page: a unique address.
  os::MutableBytes map() {
    const PageSpan span = page_span({options.head, std::max<std::uint64_t>(size, 1)}, os::page_size());
    auto reserved = Addresses::reserve(span.length, span.offset);
    if (reserved.error != 0) fail("reserve addresses for", reserved.error);
    addresses = std::move(reserved.value);
    const int error = os::map_shared_at(addresses.at(), span.length, file.fd.get(), span.offset);
    if (error != 0) fail("map", error);
    return {addresses.at(), static_cast<std::size_t>(size)};
  }

  void check_range(const char* operation, ByteRange range) const {
    if (!in_bounds(size, range.offset, range.length))
      fail(
          operation, EINVAL,
          concat(range.length, " bytes at offset ", range.offset, " are out of range: the array has ", size, " bytes"));
  }

  // Whole pages, sorted and merged.
  std::vector<ByteRange> pages_of(const char* operation, Ranges ranges) const {
    if (ranges) std::ranges::for_each(*ranges, [&](ByteRange range) { check_range(operation, range); });
    auto found = whole_pages(ranges, size, options.head);
    std::erase_if(found, [](const ByteRange& range) { return range.length == 0; });
    return found;
  }

  std::optional<std::uint64_t> resident(std::span<const ByteRange> ranges) const {
    std::uint64_t sum = 0;
    for (const auto& range : ranges) {
      const auto answer = pages.cached({options.head + range.offset, range.length});
      if (!answer.bytes) return std::nullopt;
      sum += *answer.bytes;
    }
    return sum;
  }

  std::string reason_of_release(int error, std::optional<std::uint64_t> stayed) const {
    if (error != 0)
      return "it stays in memory, because it could not be written to the disk: " +
             OsError("write out", {}, error).reason();
    if (file.in_memory) return "unmapped from this process, but still in memory, because its file system has no disk";
    if (!stayed) return "on the disk; the kernel does not report how much stayed in memory";
    if (*stayed == 0) return "on the disk, and no longer in memory";
    return "on the disk; the remaining pages are being written by others, mapped elsewhere, or part of a larger page";
  }

  void expect_writable(const char* operation) const {
    if (sealed) fail(operation, EPERM, "it is sealed");
    expect_nothing_lost(operation);
  }

  void expect_nothing_lost(const char* operation) const {
    if (const int error = lost; error != 0)
      fail(operation, error, "an earlier writeback by the kernel failed, and bytes were lost");
  }

  // The kernel reports a failed write-out once; it is recorded here.
  void remember(int error) noexcept {
    int none = 0;
    if (error != 0) lost.compare_exchange_strong(none, error);
  }

  // Calls sink(piece) for the pieces of a range of the file, each as soon as the cap permits it.
  template <class Sink>
  void in_pieces(const char* operation, ByteRange range, const Sink& sink) {
    const std::shared_lock lock(writing);
    expect_writable(operation);
    const std::uint64_t size_of_piece = pages.piece_size();
    for (std::uint64_t at = range.offset, end = range.offset + range.length; at < end;) {
      const ByteRange piece{at, std::min(size_of_piece - at % size_of_piece, end - at)};
      if (const int error = pages.make_room(piece); error != 0) {
        remember(error);
        fail("write out", error);
      }
      sink(piece);
      at += piece.length;
    }
  }

  void write(Bytes bytes, std::uint64_t at) {
    if (const auto put = os::write_at(file.fd.get(), bytes, at); !put) fail("write", put.error);
  }

  // False: impossible, the bytes must go through the page cache.
  bool write_past_cache(Bytes bytes, std::uint64_t at) {
    const std::shared_lock lock(writing);
    expect_writable("write");
    if (file.in_memory || !direct.takes(bytes)) return false;
    // Cached contents of these pages must not be written over this data later, nor be read instead of it.
    int error = pages.drop({at, bytes.size()});
    if (error == 0) error = direct.write(bytes, at);
    if (error == EOPNOTSUPP) return false;
    if (error == 0) return true;
    if (error != ENOSPC && error != EDQUOT) remember(error);  // without space, no accepted data is lost
    fail("write", error);
  }

  [[noreturn]] void fail(const char* operation, int error, std::string detail = {}) const {
    throw OsError(operation, options.name + " in " + file.place.folder, error, std::move(detail));
  }

  ScratchOptions options;
  std::uint64_t size;
  PlacedFile file;
  Addresses addresses;
  os::MutableBytes mapped;
  WrittenPages pages;
  DirectWrites direct;
  SharedForkMutex writing;   // shared by those who write through the kernel; exclusive for the end of that
  std::atomic<int> lost{0};  // errno of the first bytes that did not reach the disk
  std::atomic<bool> sealed{false};
  bool published = false;
};

ScratchFile::ScratchFile(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}
ScratchFile::ScratchFile(ScratchFile&&) noexcept = default;
ScratchFile& ScratchFile::operator=(ScratchFile&&) noexcept = default;
ScratchFile::~ScratchFile() = default;

ScratchFile ScratchFile::create(std::uint64_t size, const ScratchOptions& options) {
  return ScratchFile(std::make_unique<State>(size, options));
}

std::span<std::byte> ScratchFile::bytes() & noexcept { return state_->mapped; }
Bytes ScratchFile::bytes() const& noexcept { return state_->mapped; }

void ScratchFile::copy_in(std::uint64_t offset, Bytes from) {
  state_->check_range("write", {offset, from.size()});
  const std::uint64_t begin = state_->options.head + offset;
  state_->in_pieces("write", {begin, from.size()}, [&](ByteRange piece) {
    state_->write(from.subspan(piece.offset - begin, piece.length), piece.offset);
  });
}

void ScratchFile::copy_in(std::uint64_t offset, std::uint64_t stride, std::uint64_t count, Bytes from) {
  if (count == 0) return;
  const std::uint64_t each = from.size() / count;
  if (from.size() % count != 0) state_->fail("write", EINVAL, "the bytes cannot be divided into rows");
  state_->check_range("write", {offset, each});
  if (stride != 0 && count - 1 > (state_->size - offset) / stride)
    state_->fail("write", EINVAL, "the last rows are beyond the end of the array");
  for (std::uint64_t i = 0; i < count; ++i) copy_in(offset + i * stride, from.subspan(i * each, each));
}

void ScratchFile::write_direct(std::uint64_t offset, Bytes from) {
  state_->check_range("write", {offset, from.size()});
  const ByteRange pages = DirectWrites::whole_pages({head() + offset, from.size()});
  const std::uint64_t before = pages.offset - (head() + offset);
  const Bytes inside = from.subspan(before, pages.length);
  copy_in(offset, from.first(before));
  if (!inside.empty() && !state_->write_past_cache(inside, pages.offset)) {
    copy_in(offset + before, inside);
    if (const int error = state_->pages.drop(pages); error != 0) {
      state_->remember(error);
      state_->fail("write out", error);
    }
  }
  copy_in(offset + before + pages.length, from.subspan(before + pages.length));
}

void ScratchFile::fill(ByteRange range, std::byte value) {
  state_->check_range("fill", range);
  const std::vector<std::byte> values(std::min<std::uint64_t>(range.length, std::uint64_t{1} << 20U), value);
  state_->in_pieces("fill", {state_->options.head + range.offset, range.length}, [&](ByteRange piece) {
    for (std::uint64_t done = 0; done < piece.length;) {
      const auto part = Bytes(values).first(std::min<std::uint64_t>(values.size(), piece.length - done));
      state_->write(part, piece.offset + done);
      done += part.size();
    }
  });
}

void ScratchFile::wrote(ByteRange range) {
  state_->check_range("count", range);
  state_->in_pieces("count", {state_->options.head + range.offset, range.length}, [](ByteRange) {});
}

void ScratchFile::read(std::uint64_t offset, std::span<std::byte> into) const {
  state_->check_range("read", {offset, into.size()});
  const auto got = os::read_at(descriptor(), into, head() + offset);
  if (!got || got.value < into.size()) state_->fail("read", got ? EIO : got.error);
}

ReleaseReport ScratchFile::release(Ranges ranges) {
  const auto start = std::chrono::steady_clock::now();
  const auto pages = state_->pages_of("release", ranges);
  ReleaseReport report;
  report.bytes = total_length(pages);
  report.resident_before = state_->resident(pages);
  int error = 0;
  for (const auto& range : pages)
    if (error == 0) error = state_->pages.drop({head() + range.offset, range.length});
  state_->remember(error);
  report.resident_after = state_->resident(pages);
  report.reason = state_->reason_of_release(error, report.resident_after);
  report.seconds = seconds_since(start);
  return report;
}

WarmReport ScratchFile::prefetch(Ranges ranges) const {
  const auto pages = state_->pages_of("prefetch", ranges);
  if (pages.empty()) {
    WarmReport report;
    report.complete = true;
    report.reason = "no bytes were selected";
    return report;
  }
  WarmOptions options;
  if (const auto cap = state_->options.max_resident)
    options.budget = *cap - std::min(*cap, state_->pages.cached({head(), state_->size}).bytes.value_or(0));
  options.mechanism = Mechanism::read;  // into the page cache, which our own mapping shows
  const auto mapping = Mapping::from_descriptor(descriptor(), name(), {.offset = head(), .length = state_->size});
  return warm(mapping, pages, options);
}

void ScratchFile::flush() {
  state_->expect_nothing_lost("flush");
  const bool mapped = !state_->mapped.empty() && !state_->sealed;
  int error = mapped ? os::sync_memory(state_->mapped) : 0;
  if (error == 0) error = os::sync_file(descriptor());
  state_->remember(error);
  if (error != 0) state_->fail("flush", error);
}

ScratchMemory ScratchFile::memory() const {
  const Bytes all = bytes();
  ScratchMemory memory;
  memory.bytes = all.size();
  memory.cap = state_->options.max_resident;
  const auto cached = state_->pages.cached({head(), all.size()});
  memory.resident = cached.bytes;
  memory.dirty = cached.dirty;
  memory.source = cached.source;
  if (cached.bytes && cached.dirty) memory.clean = *cached.bytes - std::min(*cached.bytes, *cached.dirty);
  if (const auto mapped = mapped_memory(all)) memory.mapped = mapped.value.mapped;
  if (const auto shared = os::shared_here(all)) memory.shared = shared.value;
  if (!memory.cap)
    memory.over = 0;
  else if (memory.resident)
    memory.over = *memory.resident - std::min(*memory.resident, *memory.cap);
  return memory;
}

Mapping ScratchFile::seal() {
  const std::unique_lock lock(state_->writing);
  state_->expect_nothing_lost("seal");
  const auto reader = os::reopen_read(descriptor());  // if it cannot be reopened, it is passed on as it is
  if (!state_->sealed && !state_->mapped.empty()) {
    if (const int error = os::make_read_only(state_->mapped); error != 0) state_->fail("seal", error);
    // Readers use the new mapping: page tables for both would be wasted.
    (void)os::drop_mapped(state_->mapped);
  }
  state_->sealed = true;
  return Mapping::from_descriptor(reader ? reader.value.get() : descriptor(), name(),
                                  {.offset = head(), .length = state_->size});
}

bool ScratchFile::sealed() const noexcept { return state_->sealed; }

void ScratchFile::publish(const std::filesystem::path& path, Bytes first, std::uint64_t size, WriteOptions options) {
  const Target target(path);
  if (!state_->sealed) target.fail("save", EBUSY, "the scratch file is not sealed");
  if (state_->published) target.fail("save", EEXIST, "the scratch file already has a name");
  if (first.size() != head() || !in_bounds(size, head(), state_->size))
    target.fail("save", EINVAL, "the header or the size does not match the scratch file");
  const auto here = os::facts_of(descriptor());
  const auto there = os::facts_of(target.folder());
  if (!there) target.fail("save", there.error);
  if (here && here.value.device != there.value.device)
    target.fail("save", EXDEV, "the scratch file is in " + folder() + ", on another file system");
  if (!state_->file.linkable)
    target.fail("save", EOPNOTSUPP, "the file system of " + folder() + " cannot give an unnamed file a name");
  target.sweep();
  (void)os::try_lock(descriptor());  // until the file has its name: what is not locked is swept
  if (const auto put = os::write_at(descriptor(), first, 0); !put) target.fail("write", put.error);
  if (const int error = os::set_size(descriptor(), size); error != 0) target.fail("save", error);
  // The data is unchanged: processes that were given its identity must find it unchanged.
  if (here) (void)os::set_written(descriptor(), here.value.mtime_ns);
  state_->expect_nothing_lost("save");
  if (options.durable) flush();
  if (const int error = target.put_nameless(descriptor()); error != 0) target.fail("save", error);
  state_->published = true;
  if (options.durable) target.flush_folder();
}

std::uint64_t ScratchFile::head() const noexcept { return state_->options.head; }
std::optional<std::uint64_t> ScratchFile::max_resident() const noexcept { return state_->options.max_resident; }
int ScratchFile::descriptor() const noexcept { return state_->file.fd.get(); }
const std::string& ScratchFile::name() const& noexcept { return state_->options.name; }
const std::string& ScratchFile::folder() const& noexcept { return state_->file.place.folder; }
const std::string& ScratchFile::reason() const& noexcept { return state_->file.place.reason; }

}  // namespace onecopy
