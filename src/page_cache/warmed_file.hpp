// One file of a warming: which parts are missing, how they are read, and the result.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "onecopy/page_cache/warm.hpp"
#include "page_cache/plan.hpp"

namespace onecopy {

class WarmedFile;

// Whether a byte of each page is accessed once the page is in memory.
enum class Touch : std::uint8_t { no, yes };

// What one thread takes at a time.
struct WarmPiece {
  WarmedFile* file = nullptr;
  ByteRange range;
  bool missing = false;  // to be brought in; else only to be inspected
  bool alone = false;    // without the kernel's read-around
};

// The part of `range` from `at` on, up to the next multiple of `size` in the *file*: two parts never share a 2 MiB
// page.
ByteRange part_at(std::uint64_t at, ByteRange range, std::uint64_t size, std::uint64_t file_offset);

class WarmedFile {
 public:
  // The mapping has to outlive this object.
  WarmedFile(const Mapping& mapping, Ranges ranges, std::shared_ptr<Inspector> inspector);

  // These three in this order, from one thread. Throws DataLost where the file no longer has the bytes.
  void find_missing();
  void find_missing_again();                              // after a while
  void prepare(Plan plan, const Conditions& conditions);  // asks for 2 MiB pages where the plan does
  void append_pieces_to(std::vector<WarmPiece>& pieces);

  // Seconds until one small read of what is missing is answered, past the page cache. Empty: the file system has no
  // such reads.
  std::optional<double> measure_latency() const noexcept;

  // From any thread; errno, ENOSYS where the kernel cannot populate.
  int populate(ByteRange step, Touch touch) const noexcept;
  int read(ByteRange step) const noexcept;
  // Starts reading exactly this, so that a later page fault waits for its own page and reads nothing around it.
  void prefetch(ByteRange step) const noexcept;
  std::uint64_t cached_now() const;  // bytes; 0 where the kernel does not report it

  // Once, when all threads have ended. Throws the inspector's error.
  WarmReport finish();
  // Throws DataLost or OsError for a step at `at` that failed with `error`.
  [[noreturn]] void fail(int error, std::uint64_t at) const;

  const Mapping& mapping() const noexcept { return mapping_; }
  const Plan& plan() const noexcept { return plan_; }
  Inspector* inspector() const noexcept { return inspector_.get(); }
  std::uint64_t bytes() const noexcept { return report_.bytes; }
  std::uint64_t missing() const noexcept { return missing_; }
  std::uint64_t isolated_bytes() const noexcept;

 private:
  bool has_unread_pages(ByteRange piece) const noexcept;
  void isolate();
  void advise_huge();

  const Mapping& mapping_;
  std::shared_ptr<Inspector> inspector_;
  std::vector<ByteRange> ranges_;
  std::vector<ByteRange> isolated_;  // of these ranges, those read without what lies around
  std::vector<WarmPiece> pieces_;
  std::uint64_t missing_ = 0;
  Plan plan_;
  WarmReport report_;
};

}  // namespace onecopy
