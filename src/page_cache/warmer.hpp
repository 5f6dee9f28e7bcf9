// A warming: files cut into pieces, which threads take in turn, with counters that other threads may read.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "files/fork_mutex.hpp"
#include "onecopy/page_cache/warm.hpp"
#include "page_cache/warmed_file.hpp"

namespace onecopy {

class Warmer {  // on the heap: see fork_mutex.hpp
 public:
  explicit Warmer(WarmOptions options) : options_(std::move(options)) {}

  // Call before run(). The mapping must outlive this object.
  void add(const Mapping& mapping, Ranges ranges, std::shared_ptr<Inspector> inspector);

  // Once; throws DataLost, OsError, and what inspectors have found.
  WarmReport run();

  // From any thread, while run() works in another.
  void cancel() noexcept { cancelled_.store(true, std::memory_order_relaxed); }
  // Grows whenever bytes arrive in memory, here or read by the process that this one waits for.
  std::uint64_t moved() const noexcept {
    return progress_done_.load(std::memory_order_relaxed) + seen_elsewhere_.load(std::memory_order_relaxed);
  }
  Progress progress() const noexcept { return {progress_done_.load(std::memory_order_relaxed), progress_total_}; }

 private:
  struct RoundTimes {  // of all threads, in nanoseconds
    std::atomic<std::uint64_t> all{0};
    std::atomic<std::uint64_t> cpu_wait{0};  // in which they were ready, and others had the CPUs
  };

  int take_name(const std::string& name);  // errno
  void give_name_back();
  void wait_for_another();
  void choose_plans();
  void cut_to_budget(std::vector<WarmPiece>& pieces);
  void read_all(std::span<const WarmPiece> pieces);
  // False: an error, or the inspector, has ended it. `times`: those of this visit are wanted, too.
  bool visit(std::span<const WarmPiece> pieces, RoundTimes* times = nullptr);
  bool visit_piece(const WarmPiece& piece) noexcept;                       // false: every thread stops
  int fill(const WarmPiece& piece, ByteRange step, Touch touch) noexcept;  // errno
  WarmReport finish();

  WarmOptions options_;
  std::deque<WarmedFile> files_;  // a deque: pieces point to files
  unsigned threads_ = 0;
  unsigned most_threads_ = 0;
  unsigned threads_ran_ = 0;
  std::uint64_t most_ = 0;     // bytes to bring in
  bool within_budget_ = true;  // false: the budget ends before the work does
  std::uint64_t progress_total_ = 0;
  std::atomic<std::uint64_t> progress_done_{0};
  std::atomic<std::uint64_t> filled_{0};
  std::atomic<std::uint64_t> seen_elsewhere_{0};
  std::atomic<std::uint64_t> minor_faults_{0};
  std::atomic<std::uint64_t> major_faults_{0};
  os::Fd claim_;                                    // of the machine, to warm the first of the files
  ForkMutex claim_mutex_{[this] { claim_ = {}; }};  // a forked child would keep the name as long as it lives
  std::atomic<bool> cannot_populate_{false};
  bool reads_first_ = false;  // read(2), and then populate: the requests of faults are too small
  std::atomic<bool> cancelled_{false};
  // Of the first step that failed; written by the thread that has set error_.
  std::atomic<int> error_{0};
  const WarmedFile* failed_file_ = nullptr;
  std::uint64_t failed_at_ = 0;
};

}  // namespace onecopy
