// The policy of warming: pure functions over measured conditions, so that it can be read and tested alone.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "onecopy/page_cache/choose_mode.hpp"
#include "onecopy/page_cache/warm.hpp"
#include "os/os.hpp"

namespace onecopy {

// The most that one thread takes at a time. Large, because the read-ahead state belongs to the open file, and threads
// that work close to each other spoil it: with 8 threads and pieces of 8 MiB 93 % ended in huge pages, with 32 MiB 99.7
// to 100 %, 0.52 s instead of 0.61 (1.5 GiB cold, medians of 5).
inline constexpr std::uint64_t largest_piece = std::uint64_t{32} << 20U;
// After each step a thread adds to the progress, and stops if the warming was cancelled. Inspectors know this size.
inline constexpr std::uint64_t step_size = std::uint64_t{4} << 20U;

// A server or a spinning disk that takes longer to answer gets many requests at a time, even for a small file.
inline constexpr double slow_answer = 0.001;  // seconds

// The conditions at this moment, or before a file is opened. Empty: unknown.
struct Conditions {
  std::uint64_t file_size = 0;              // of several files: of all of them
  std::uint64_t missing = 0;                // bytes of the ranges that are not in memory
  std::optional<std::uint64_t> available;   // memory that may still be used, bytes
  std::optional<std::uint64_t> read_ahead;  // of the device, bytes
  std::optional<os::FileSystem> file_system;
  std::optional<double> latency;  // seconds until one small read past the page cache was answered
  bool private_copy = false;      // Mode::copy: nothing to bring in
};

// Whether a mechanism itself reads, instead of leaving that to the kernel or the caller.
constexpr bool fills(Mechanism mechanism) noexcept {
  return mechanism == Mechanism::populate || mechanism == Mechanism::read;
}

struct Plan {
  Mechanism mechanism = Mechanism::populate;
  bool huge = false;
  unsigned threads = 1;
  unsigned most_threads = 1;            // as many as may try to make it faster
  std::uint64_t most = 0;               // bytes to bring in
  std::uint64_t piece = largest_piece;  // bytes that one thread takes at a time
  // A range beside which the kernel would read more than 1/part of it in vain is read alone; overshoot is how far the
  // kernel goes beyond what is touched. 0: no range is isolated.
  std::uint64_t overshoot = 0;
  std::uint64_t part = 1;
  std::uint64_t at_once = 0;     // bytes that the kernel takes of a request to read exactly this
  bool slow = false;             // the file system takes long to answer
  bool too_large = false;        // the files are larger than half of the memory
  bool nothing_missing = false;  // all bytes are in memory already
  std::string reason;

  bool fills() const noexcept { return onecopy::fills(mechanism); }
};

Plan choose(const Conditions& conditions, const WarmOptions& options);

// What was measured while some threads read a piece each.
struct Round {
  unsigned threads = 0;
  double rate = 0;      // bytes per second
  double cpu_wait = 0;  // the part of their time in which they were ready, and others had the CPUs
};

// How many threads read in the next round of a slow file system; the same number ends the search. `best` is the highest
// rate before. More threads have more requests in flight, but where CPUs are short, they take time from the work that
// runs beside, and from a server on this machine.
unsigned next_threads(const Round& round, double best, unsigned most) noexcept;

// Available memory, and the read-ahead and file system of an open file.
Conditions conditions_of(int fd, std::uint64_t device);

ModeChoice choose_mode(const Conditions& conditions);

// "1.5 GiB", for the sentences of reports.
std::string readable(std::uint64_t bytes);

}  // namespace onecopy
