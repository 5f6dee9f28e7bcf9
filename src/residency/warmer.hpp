// The warming of one file, with the counters that other threads may look at while it runs.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "onecopy/residency/warm.hpp"
#include "residency/plan.hpp"

namespace onecopy {

class Warmer {
 public:
  // `whole`: bytes of all the files of which this is one; 0: it is the only one.
  Warmer(const Mapping& mapping, std::span<const ByteRange> ranges, WarmOptions options, std::uint64_t whole = 0);

  // Once; throws DataLost, OsError. `taken`: bytes that the same warming has brought in from other files.
  WarmReport run(std::uint64_t taken = 0);

  // From any thread, while run() works in another.
  void cancel() noexcept { cancelled_.store(true, std::memory_order_relaxed); }
  Progress progress() const noexcept {
    return {progress_done_.load(std::memory_order_relaxed), progress_total_.load(std::memory_order_relaxed)};
  }

 private:
  // One thread's share at a time.
  struct Piece {
    ByteRange range;
    bool missing;        // to be brought in; else only to be inspected
    bool alone = false;  // without what the kernel would read around it
  };

  std::vector<Piece> cut() const;
  void set_apart(std::vector<Piece>& pieces, const Plan& plan);
  void advise_huge();
  bool cut_to_budget(std::vector<Piece>& pieces, std::uint64_t most);
  void visit(std::span<const Piece> pieces, const Plan& plan);
  bool visit_piece(Piece piece) noexcept;             // false: everybody stops
  int fill_step(ByteRange step, bool look) noexcept;  // errno
  void begin_to_read(ByteRange step) const noexcept;
  int read_step(ByteRange step) noexcept;
  void finish(const Plan& plan);
  [[noreturn]] void fail() const;

  const Mapping& mapping_;
  WarmOptions options_;
  std::vector<ByteRange> ranges_;
  std::vector<ByteRange> alone_;  // of these, what is read alone
  std::uint64_t at_once_ = 0;
  std::uint64_t whole_;
  WarmReport report_;
  std::atomic<Mechanism> mechanism_{Mechanism::none};
  std::atomic<std::uint64_t> progress_done_{0};
  std::atomic<std::uint64_t> progress_total_{0};
  std::atomic<std::uint64_t> filled_{0};
  std::atomic<std::uint64_t> minor_faults_{0};
  std::atomic<std::uint64_t> major_faults_{0};
  std::atomic<std::uint64_t> failed_at_{0};
  std::atomic<int> error_{0};
  std::atomic<bool> cancelled_{false};
};

}  // namespace onecopy
