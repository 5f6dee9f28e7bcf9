// Reads a file into memory, or into another file, at the speed of its device or server.
#pragma once

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <string>

#include "onecopy/base/pieces.hpp"
#include "os/os.hpp"

namespace onecopy {

// The part of a file that reading leaves in the page cache.
enum class Leaves : std::uint8_t {
  read,    // what was read: other processes read the file, too
  nothing  // only what was there before
};

// Has its own descriptors. Any number of threads may use it.
class Reader {
 public:
  Reader(int fd, Leaves leaves);  // throws OsError if no descriptor is left

  int descriptor() const noexcept { return fd_.get(); }

  // Fills `into` with the file's bytes from `at` on, through the page cache or past it. errno; ENODATA where the file
  // ends before. `done`: bytes that were read, also before an error.
  int read(os::MutableBytes into, std::uint64_t at, std::size_t& done) const noexcept;

  // Reads a piece into the page cache, in requests as large as its file system allows. True if it was not there.
  bool bring_in(ByteRange piece) const noexcept;
  void let_go(ByteRange piece) const noexcept;  // of what was brought in: as Leaves says

  // How much a thread reads at a time, and how many threads read. With a server, many wait at the same time.
  std::uint64_t piece() const noexcept { return piece_; }
  unsigned threads() const noexcept { return threads_; }

 private:
  bool mostly_cached(ByteRange range) const noexcept;

  os::Fd fd_;
  os::Fd direct_;
  Leaves leaves_;
  std::uint64_t piece_;
  unsigned threads_;
  mutable std::atomic<bool> has_small_requests_{false};
};

// One reading of a range of a file by several threads, for read_in_pieces.
struct PieceReading {
  int fd;
  Leaves leaves;
  ByteRange range;
  unsigned threads = 0;  // 0: as many as suit the file system
  const char* operation;
  const std::string& path;  // for errors
  // Reads one piece; returns errno. `done`: bytes that were read before an error. Belongs to the threads as well.
  std::function<int(const Reader& reader, ByteRange piece, std::size_t& done)> read;
};

// Pieces are cut at multiples of the piece size in the *file*, so that all but the first and last are aligned. Throws
// OsError (ETIMEDOUT: a server that does not answer), or DataLost where the file ends early. `left` becomes true where
// threads still wait for such a server: they may go on to use what `read` refers to at any time.
void read_in_pieces(PieceReading reading, bool& left);

// Calls use(part, offset) for the bytes of a range, one part after the other, until it returns an errno, and returns
// that. ENODATA where the file ends before. A part stays in the cache of the CPU until it is used.
template <class Use>
int read_in_parts(int fd, ByteRange range, const Use& use) noexcept {
  constexpr std::size_t size = std::size_t{128} << 10U;
  // Not on the stack: musl's threads have 128 KiB of it.
  const std::unique_ptr<std::byte[]> buffer(new (std::nothrow) std::byte[size]);  // NOLINT(*-avoid-c-arrays)
  if (buffer == nullptr) return ENOMEM;
  for (std::uint64_t done = 0; done < range.length; done += size) {
    const os::MutableBytes part(buffer.get(), std::min<std::uint64_t>(size, range.length - done));
    const auto got = os::read_at(fd, part, range.offset + done);
    if (!got || got.value < part.size()) return got ? ENODATA : got.error;
    if (const int error = use(part, range.offset + done); error != 0) return error;
  }
  return 0;
}

// A failed read becomes DataLost where the device failed or the file ends early, OsError for every other reason.
// `error`: ENODATA where the file ended before the read did. `offset`: in the file, where the read began.
[[noreturn]] void throw_read_error(const char* operation, const std::string& path, int error, std::uint64_t offset);

// Whether a file system has small requests, by the faults that waited while so many bytes were populated in 2 MiB
// pages. Faults then make many requests, most of which the kernel defers as soon as several threads wait (congestion
// of FUSE), to read page by page: plain reads are faster there.
bool are_requests_small(std::uint64_t major_faults, std::uint64_t bytes) noexcept;

// How long a device or server may return nothing: 120 seconds, or ONECOPY_READ_TIMEOUT at the start of the program.
std::chrono::duration<double> read_patience();

// Throws the reason that ended a watched reading: an interrupt, or OsError ETIMEDOUT.
void throw_if_stopped(const Watched& watched, const char* operation, const std::string& path);

}  // namespace onecopy
