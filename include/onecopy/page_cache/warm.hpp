// Reads a mapping from the disk at the device's speed: in a blocking call or in a background job.
//
// A page fault reads the device's read-ahead and waits; `warm` first requests 2 MiB pages, so that each read is large
// and each fault maps 512 small pages at once, and then several threads wait for the disk at the same time. Resident
// pages are not read again. It is never needed for correctness: a cold mapping is read when it is touched, and what the
// kernel declines is reported, not thrown. Lost data is an error (DataLost), and so is any other failure to read
// (OsError), such as ENOMEM in a control group.
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
#include "onecopy/page_cache/report.hpp"

namespace onecopy {

enum class Huge : std::uint8_t {
  automatic,  // yes, unless the file is larger than half of the available memory
  yes,
  no,
};

// Processes bytes as soon as they are in memory, in the pass that reads them: checksums.
class Inspector {
 public:
  Inspector() = default;
  Inspector(const Inspector&) = delete;
  Inspector& operator=(const Inspector&) = delete;
  virtual ~Inspector() = default;

  // Called by several threads at once, once for every range; ranges are cut at multiples of 4 MiB of the file. False
  // stops the warming.
  virtual bool inspect(ByteRange range) noexcept = 0;

  // Called before, by one thread, if nothing is brought in for others and the files are larger than half of the
  // available memory: what the inspector reads itself should not stay in the page cache, where it would displace other
  // files.
  virtual void leave_no_cache() {}

  // Called afterwards, by one thread. Returns the number of verified bytes; throws the error that was found.
  virtual std::uint64_t finish() = 0;
};

struct WarmOptions {
  unsigned threads = 0;  // 0: 8
  Huge huge = Huge::automatic;
  std::optional<std::uint64_t> budget;  // maximum of bytes to read; none: the available memory
  std::optional<Mechanism> mechanism;   // none: chosen
  bool in_order = false;  // the caller will read everything from front to back next: a large read-ahead brings it in
  bool low_priority = false;             // of a job's threads, so that they do not delay the caller's other work
  std::shared_ptr<Inspector> inspector;  // for one call of warm; also receives bytes that were resident before
};

struct Progress {
  std::uint64_t done = 0;   // bytes
  std::uint64_t total = 0;  // bytes
};

// Returns when everything is in memory, or with the reason why not. Throws DataLost where a touch would raise SIGBUS.
WarmReport warm(const Mapping& mapping, Ranges ranges = everything, const WarmOptions& options = {});

// The part of one file to warm, for a job on several files.
struct WarmPart {
  std::shared_ptr<const Mapping> mapping;
  std::optional<std::vector<ByteRange>> ranges = everything;
  std::shared_ptr<Inspector> inspector;
};

// Warms in the background. The job shares the ownership of the mapping, so the caller may drop its own. A forked child
// cannot wait for its parent's job: wait() throws there, and the destructor does nothing.
class WarmJob {
 public:
  static WarmJob start(std::shared_ptr<const Mapping> mapping,
                       std::optional<std::vector<ByteRange>> ranges = everything, const WarmOptions& options = {});
  // Several files as one, with one budget and one report. The threads read pieces of all files in this order, several
  // files at a time. A file that fails ends the job; one that was truncated before ends it before anything is read.
  // Throws std::invalid_argument for `options.inspector`: an inspector belongs to one file, and is set in its part.
  static WarmJob start(std::vector<WarmPart> parts, const WarmOptions& options = {});

  WarmJob(WarmJob&&) noexcept;
  WarmJob& operator=(WarmJob&&) noexcept;
  ~WarmJob();  // cancels, and waits for the pieces in flight, a second at most: a server may never answer

  bool done() const;
  Progress progress() const noexcept;
  void cancel() noexcept;  // takes effect at the end of the pieces in flight; wait() then reports what was done
  // True: done. Throws OsError ETIMEDOUT, and cancels, when nothing was read for 120 s (or ONECOPY_READ_TIMEOUT).
  bool wait_for(std::chrono::milliseconds time) const;
  WarmReport wait() const;  // throws what warm() would throw

 private:
  struct State;
  explicit WarmJob(std::shared_ptr<State> state) noexcept;
  std::shared_ptr<State> state_;
};

}  // namespace onecopy
