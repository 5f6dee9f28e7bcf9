// Filling a mapping from the disk at the device's speed: blocking, or beside other work as a job.
//
// A page fault reads what the device reads ahead and waits; a warm asks for 2 MiB pages first, so that each read is
// large and each fault maps 512 small pages at once, and then lets several threads wait for the disk together. What is
// in memory already is left alone. Nothing of it is needed for correctness: a mapping that is not warm is read when it
// is touched, and whatever the kernel declines is told in the report and not thrown. Lost data is an error (DataLost),
// and so is what ends the reading otherwise (OsError), such as ENOMEM in a control group.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "onecopy/base/bytes.hpp"
#include "onecopy/files/mapping.hpp"
#include "onecopy/residency/report.hpp"

namespace onecopy {

enum class Huge : std::uint8_t {
  automatic,  // yes, unless the file is larger than half of the memory that may be used
  yes,
  no,
};

// Processes bytes as soon as they are in memory, in the pass that brings them in: checksums. A reference that a binding
// hands over shares the ownership, so that the last one may be dropped in any thread, without the GIL.
class Inspector : public std::enable_shared_from_this<Inspector> {
 public:
  Inspector() = default;
  Inspector(const Inspector&) = delete;
  Inspector& operator=(const Inspector&) = delete;
  virtual ~Inspector() = default;

  // From several threads at once, until every range has been given once; ranges are cut at multiples of 4 MiB of the
  // file. False stops the warming.
  virtual bool inspect(ByteRange range) noexcept = 0;

  // Afterwards, from one thread. Returns the bytes that were found good; throws what was found to be wrong.
  virtual std::uint64_t finish() = 0;
};

struct WarmOptions {
  unsigned threads = 0;  // 0: 8
  Huge huge = Huge::automatic;
  std::optional<std::uint64_t> budget;  // bytes to bring in at most; none: what memory is available
  std::optional<Mechanism> mechanism;   // none: chosen
  bool in_order = false;  // the caller will read everything from front to back next: a large read-ahead brings it in
  std::shared_ptr<Inspector> inspector;  // for one warming; also given what was in memory before
};

struct Progress {
  std::uint64_t done = 0;   // bytes
  std::uint64_t total = 0;  // bytes
};

// Returns when everything is in memory, or with the reason why not. Throws DataLost where a touch would be SIGBUS.
WarmReport warm(const Mapping& mapping, std::span<const ByteRange> ranges = {}, const WarmOptions& options = {});

// What is warmed of one of several files.
struct WarmPart {
  std::shared_ptr<const Mapping> mapping;
  std::vector<ByteRange> ranges;  // none: all of it
  std::shared_ptr<Inspector> inspector;
};

// The same beside the caller's other work. The job owns a share of the mapping, so the caller may drop its own.
// A forked child cannot wait for its parent's job: wait() throws there, and the destructor does nothing.
class WarmJob {
 public:
  static WarmJob start(std::shared_ptr<const Mapping> mapping, std::vector<ByteRange> ranges = {},
                       const WarmOptions& options = {});
  // Several files as one, with one budget and one report. The threads read pieces of all files in this order, several
  // files at a time. A file that fails ends the job; one that was truncated before ends it before anything is read.
  // `options.inspector` is not used, because an inspector knows one file.
  static WarmJob start(std::vector<WarmPart> parts, const WarmOptions& options = {});

  WarmJob(WarmJob&&) noexcept;
  WarmJob& operator=(WarmJob&&) noexcept;
  ~WarmJob();  // cancels and waits for the piece in flight

  bool done() const;
  Progress progress() const noexcept;
  void cancel() noexcept;  // soon: at the end of the pieces in flight; wait() then reports what was done
  bool wait_for(std::chrono::milliseconds time) const;  // true: done
  WarmReport wait() const;                              // throws what warm() would have thrown

 private:
  struct State;
  explicit WarmJob(std::unique_ptr<State> state) noexcept;
  std::unique_ptr<State> state_;
};

}  // namespace onecopy
