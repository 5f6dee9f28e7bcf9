// Reading a file into memory, or into another file, as fast as its device or server gives.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "files/read_error.hpp"
#include "onecopy/base/pieces.hpp"
#include "os/os.hpp"

namespace onecopy {

// What is left of a file in the page cache by reading it.
enum class Leaves : std::uint8_t {
  read,    // what was read: other processes read the file as well
  nothing  // but what was there before
};

// Has descriptors of its own. Any number of threads may use it.
class Reader {
 public:
  Reader(int fd, Leaves leaves);  // throws OsError where there is no descriptor left

  // Fills `into` with the file's bytes from `at` on, through the page cache or past it. errno; ENODATA where the file
  // ends before. `done`: bytes that were read, also before an error.
  int read(os::MutableBytes into, std::uint64_t at, std::size_t& done) const noexcept;

  // Has a piece read into the page cache, in requests as large as its file system has. True where it was not there.
  bool bring_in(ByteRange piece) const noexcept;
  int read_cached(os::MutableBytes into, std::uint64_t at) const noexcept;
  void let_go(ByteRange piece) const noexcept;  // of what was brought in: as Leaves says

  // What one thread reads at a time, and how many read. On a server many wait side by side.
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

// Whether a file system has small requests, by the faults that waited while so many bytes were populated in 2 MiB
// pages. These then make many requests, of which the kernel puts off most as soon as several threads wait (congestion
// of FUSE), to read page by page: plain reads are faster there.
bool are_requests_small(std::uint64_t major_faults, std::uint64_t bytes) noexcept;

// How long a device or server may give nothing: 120 seconds, or ONECOPY_READ_TIMEOUT at the start of the program.
std::chrono::duration<double> read_patience();

// Throws what ended a watched reading: an interrupt, or OsError ETIMEDOUT.
void throw_if_stopped(const Watched& watched, const char* operation, const std::string& path);

}  // namespace onecopy
