#include "files/reading.hpp"

#include <charconv>

#include "files/addresses.hpp"
#include "files/page_span.hpp"
#include "onecopy/base/environment.hpp"
#include "onecopy/base/error.hpp"
#include "onecopy/files/snapshot.hpp"

namespace onecopy {
namespace {

// Large enough for the device's best rate, small enough that two threads stay busy to the end. On a server or a FUSE
// file system a piece may take seconds, and Ctrl-C waits for a piece.
constexpr std::uint64_t local_piece = std::uint64_t{8} << 20U;
constexpr std::uint64_t remote_piece = os::huge_page;

// Threads wait for the disk more than they compute. Measured on two cores, 1.5 GiB: cold 0.70 s with 1, 0.62 with 4 and
// 8; from the cache 0.52 with 1, 0.13 with 2, 4 and 8.
constexpr unsigned local_threads = 8;
constexpr unsigned remote_threads = 32;

// A part of a file in the address space, for one call: errno where there is no space for it.
class Mapped {
 public:
  Mapped(int fd, ByteRange range) noexcept : span_(page_span(range, os::page_size())) {
    auto reserved = Addresses::reserve(span_.length, span_.offset);
    error_ = reserved.error;
    if (!reserved) return;
    addresses_ = std::move(reserved.value);
    error_ = os::map_file_at(addresses_.at(), span_.length, fd, span_.offset, os::Access::read);
  }

  int error() const noexcept { return error_; }
  os::MutableBytes pages() const noexcept { return {addresses_.at(), static_cast<std::size_t>(span_.length)}; }

 private:
  PageSpan span_;
  Addresses addresses_;
  int error_ = 0;
};

// Kernels before 6.5: mincore requires a mapping, which is made for this one query.
os::Result<os::CacheFacts> cached_by_mincore(int fd, ByteRange range) noexcept {
  const Mapped mapped(fd, range);
  if (mapped.error() != 0) return {{}, mapped.error()};
  return os::cached_by_mincore(fd, mapped.pages());
}

}  // namespace

Reader::Reader(int fd, Leaves leaves) : leaves_(leaves) {
  auto own = os::duplicate(fd);
  if (!own) throw OsError("duplicate a descriptor of", "a file", own.error);
  fd_ = std::move(own.value);
  const bool remote = is_remote(fd);
  piece_ = remote ? remote_piece : local_piece;
  threads_ = remote ? remote_threads : local_threads;
  // A process that waits for a server in a direct read cannot be ended; in one through the page cache it can.
  if (leaves == Leaves::read || remote) return;
  if (auto direct = os::reopen_direct(fd)) direct_ = std::move(direct.value);
}

bool Reader::mostly_cached(ByteRange range) const noexcept {
  auto facts = os::cached_in_file(fd_.get(), range);
  if (!facts) facts = cached_by_mincore(fd_.get(), range);
  return facts && facts.value.cached >= range.length / 2;
}

int Reader::read(os::MutableBytes into, std::uint64_t at, std::size_t& done) const noexcept {
  done = 0;
  const ByteRange range{at, into.size()};
  const std::size_t aligned = into.size() / os::direct_alignment * os::direct_alignment;
  const bool fits = reinterpret_cast<std::uintptr_t>(into.data()) % os::direct_alignment == 0 &&
                    at % os::direct_alignment == 0 && aligned != 0;
  const bool past = direct_ && fits && !mostly_cached(range);
  if (past) done = os::read_at(direct_.get(), into.first(aligned), at).value;
  const bool is_new = !direct_ && bring_in(range);
  const auto rest = os::read_at(fd_.get(), into.subspan(done), at + done);
  if (is_new) let_go(range);
  done += rest.value;
  if (!rest) return rest.error;
  return done == into.size() ? 0 : ENODATA;
}

// A fault on memory with these advices reads 2 MiB, whatever the device reads ahead, and whether or not the file system
// has pages of this size.
bool Reader::bring_in(ByteRange piece) const noexcept {
  if (mostly_cached(piece)) return false;
  if (has_small_requests_.load(std::memory_order_relaxed)) return true;
  const Mapped mapped(fd_.get(), piece);
  if (mapped.error() != 0 || os::advise_huge(mapped.pages()) != Outcome::applied) return true;
  (void)os::advise_random(mapped.pages());
  const auto before = os::faults_of_thread().major;
  (void)os::populate(mapped.pages());
  if (are_requests_small(os::faults_of_thread().major - before, piece.length))
    has_small_requests_.store(true, std::memory_order_relaxed);
  return true;
}

void Reader::let_go(ByteRange piece) const noexcept {
  if (leaves_ == Leaves::nothing) (void)os::drop_cached(fd_.get(), piece);
}

namespace {

struct PieceReader {
  explicit PieceReader(PieceReading of) : reading(std::move(of)), reader(reading.fd, reading.leaves) {}

  std::uint64_t first() const noexcept { return reading.range.offset / reader.piece(); }
  std::uint64_t end() const noexcept { return reading.range.offset + reading.range.length; }
  std::uint64_t count() const noexcept { return (end() + reader.piece() - 1) / reader.piece() - first(); }

  bool operator()(std::uint64_t number) noexcept {
    const std::uint64_t cut = (first() + number) * reader.piece();
    const std::uint64_t begin = std::max(cut, reading.range.offset);
    std::size_t done = 0;
    const int failed = reading.read(reader, {begin, std::min(cut + reader.piece(), end()) - begin}, done);
    int none = 0;
    if (failed != 0 && error.compare_exchange_strong(none, failed)) failed_at = begin + done;
    return failed == 0;
  }

  PieceReading reading;
  Reader reader;
  std::atomic<int> error{0};
  std::uint64_t failed_at = 0;  // read after the threads' end
};

}  // namespace

void read_in_pieces(PieceReading reading, bool& left) {
  const char* const operation = reading.operation;
  const std::string& path = reading.path;
  const auto job = std::make_shared<PieceReader>(std::move(reading));
  const unsigned threads = job->reading.threads != 0 ? job->reading.threads : job->reader.threads();
  const auto watched = watch_pieces(job->count(), threads, job, read_patience());
  left = watched.left;
  throw_if_stopped(watched, operation, path);
  if (job->error != 0) throw_read_error(operation, path, job->error, job->failed_at);
}

void throw_read_error(const char* operation, const std::string& path, int error, std::uint64_t offset) {
  if (error == EIO)
    throw DataLost(operation, path, EIO, concat("the device could not read the file near offset ", offset), offset);
  if (error == ENODATA) throw DataLost(operation, path, EIO, "the file was truncated after it was opened", offset);
  throw OsError(operation, path, error);
}

bool are_requests_small(std::uint64_t major_faults, std::uint64_t bytes) noexcept {
  constexpr std::uint64_t most = 4;  // for each 2 MiB: requests of 128 KiB make 8 to 15 (FUSE), of 1 MiB 1 to 2
  return major_faults > most * (bytes / os::huge_page + 1);
}

std::chrono::duration<double> read_patience() {
  static const double patience = [] {
    const std::string& asked = environment_at_start().read_timeout;
    double seconds = 0;
    (void)std::from_chars(asked.data(), asked.data() + asked.size(), seconds);
    return seconds > 0 ? seconds : 120;
  }();
  return std::chrono::duration<double>(patience);
}

void throw_if_stopped(const Watched& watched, const char* operation, const std::string& path) {
  if (watched.interrupted) std::rethrow_exception(watched.interrupted);
  if (!watched.stalled) return;
  throw OsError(operation, path, ETIMEDOUT,
                concat("the device or server has not returned any data for ", static_cast<int>(read_patience().count()),
                       " s (ONECOPY_READ_TIMEOUT)"));
}

}  // namespace onecopy
