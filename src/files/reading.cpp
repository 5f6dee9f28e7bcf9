#include "files/reading.hpp"

#include <cstdlib>

#include "files/page_span.hpp"
#include "onecopy/base/error.hpp"

namespace onecopy {
namespace {

// Large enough for the device's best rate, small enough that two threads stay busy to the end. On a server or a FUSE
// file system a piece may take seconds, and Ctrl-C waits for a piece.
constexpr std::uint64_t local_piece = std::uint64_t{8} << 20U;
constexpr std::uint64_t remote_piece = std::uint64_t{1} << 20U;

// Threads wait for the disk more than they compute. Measured on two cores, 1.5 GiB: cold 0.70 s with 1, 0.62 with 4 and
// 8; from the cache 0.52 with 1, 0.13 with 2, 4 and 8.
constexpr unsigned local_threads = 8;
constexpr unsigned remote_threads = 32;

// Kernels before 6.5: mincore wants a mapping, which lives for this one question.
os::Result<os::CacheFacts> cached_by_mincore(int fd, ByteRange range) noexcept {
  const PageSpan span = page_span(range, os::page_size());
  const auto reserved = os::reserve_addresses(span.length);
  if (!reserved) return {{}, reserved.error};
  os::Result<os::CacheFacts> facts{{}, os::map_file_at(reserved.value, span.length, fd, span.offset, os::Access::read)};
  if (facts) facts = os::cached_by_mincore(fd, {reserved.value, span.length});
  os::unmap(reserved.value, span.length);
  return facts;
}

}  // namespace

Reader::Reader(int fd) {
  auto own = os::duplicate(fd);
  if (!own) throw OsError("duplicate a descriptor of", "a file", own.error);
  fd_ = std::move(own.value);
  const auto system = os::file_system_of(fd);
  const bool remote = system && system.value.storage == os::Storage::remote;
  piece_ = remote ? remote_piece : local_piece;
  threads_ = remote ? remote_threads : local_threads;
  // A process that waits for a server in a direct read cannot be ended; in one through the page cache it can.
  if (auto direct = os::reopen_direct(fd); direct && !remote) direct_ = std::move(direct.value);
}

bool Reader::mostly_cached(ByteRange range) const noexcept {
  if (!direct_) return true;  // no other way than through the cache
  auto facts = os::cached_in_file(fd_.get(), range);
  if (!facts) facts = cached_by_mincore(fd_.get(), range);
  return facts && facts.value.cached >= range.length / 2;
}

int Reader::read(os::MutableBytes into, std::uint64_t at, std::size_t& done) const noexcept {
  done = 0;
  const std::size_t aligned = into.size() / os::direct_alignment * os::direct_alignment;
  const bool fits = reinterpret_cast<std::uintptr_t>(into.data()) % os::direct_alignment == 0 &&
                    at % os::direct_alignment == 0 && aligned != 0;
  if (fits && !mostly_cached({at, into.size()})) done = os::read_at(direct_.get(), into.first(aligned), at).value;
  const auto rest = os::read_at(fd_.get(), into.subspan(done), at + done);
  done += rest.value;
  if (!rest) return rest.error;
  return done == into.size() ? 0 : ENODATA;
}

int Reader::read_cached(os::MutableBytes into, std::uint64_t at) const noexcept {
  const auto got = os::read_at(fd_.get(), into, at);
  if (!got) return got.error;
  return got.value == into.size() ? 0 : ENODATA;
}

void Reader::read_ahead(ByteRange range) const noexcept { (void)os::will_need(fd_.get(), range); }

std::chrono::duration<double> read_patience() {
  constexpr double usual = 120;
  const char* asked = std::getenv("ONECOPY_READ_TIMEOUT");  // NOLINT(concurrency-mt-unsafe): nothing here changes it
  const double seconds = asked == nullptr ? usual : std::strtod(asked, nullptr);
  return std::chrono::duration<double>(seconds > 0 ? seconds : usual);
}

void throw_if_stopped(const Watched& watched, const char* operation, const std::string& path) {
  if (watched.interrupted) std::rethrow_exception(watched.interrupted);
  if (!watched.stalled) return;
  throw OsError(operation, path, ETIMEDOUT,
                "the device or server has given nothing for " +
                    std::to_string(static_cast<int>(read_patience().count())) + " s (ONECOPY_READ_TIMEOUT)");
}

}  // namespace onecopy
