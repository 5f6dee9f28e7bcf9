// Reading a file into memory, or into another file, as fast as its device or server gives, without leaving it in the
// page cache.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "files/read_error.hpp"
#include "onecopy/base/pieces.hpp"
#include "os/os.hpp"

namespace onecopy {

// Has descriptors of its own. Any number of threads may use it.
class Reader {
 public:
  explicit Reader(int fd);  // throws OsError where there is no descriptor left

  // From the page cache what it has; else past it (O_DIRECT) where buffer and offset fit. errno; ENODATA where the file
  // ends before. `done`: bytes that were read, also before an error.
  int read(os::MutableBytes into, std::uint64_t at, std::size_t& done) const noexcept;

  int read_cached(os::MutableBytes into, std::uint64_t at) const noexcept;  // through the page cache
  void read_ahead(ByteRange range) const noexcept;                          // begins to read into the page cache

  // What one thread reads at a time, and how many read. On a server many wait side by side.
  std::uint64_t piece() const noexcept { return piece_; }
  unsigned threads() const noexcept { return threads_; }

 private:
  bool mostly_cached(ByteRange range) const noexcept;

  os::Fd fd_;
  os::Fd direct_;
  std::uint64_t piece_;
  unsigned threads_;
};

// How long a device or server may give nothing: 120 seconds, or ONECOPY_READ_TIMEOUT.
std::chrono::duration<double> read_patience();

// Throws what ended a watched reading: an interrupt, or OsError ETIMEDOUT.
void throw_if_stopped(const Watched& watched, const char* operation, const std::string& path);

}  // namespace onecopy
