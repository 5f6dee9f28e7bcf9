// Finds pages with equal contents in the private memory of processes, and the pages of a file among them.
//
// The processes are only read: nothing is stopped, written or swapped in. This needs the permission to trace a process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "onecopy/base/bytes.hpp"

namespace onecopy {

// The pages that a call read, in bytes.
struct PagesRead {
  std::uint64_t present = 0;  // private pages in memory
  std::uint64_t read = 0;     // the part whose contents were compared
  std::uint64_t zeros = 0;    // the part of `read` that contains zeros only, which is not compared
  std::uint64_t swapped = 0;  // swapped out, and therefore not read
};

struct Estimate {
  double bytes = 0;
  double error = 0;  // one standard deviation, in bytes; 0 if all pages were read
};

// The places where pages are found are called sources: the heap of a process, or the variables of a library in it.
class EqualPages {
 public:
  // `share`: the share of the pages to read, above 0 and at most 1. They are chosen at random, by `seed`.
  explicit EqualPages(double share = 1, std::uint64_t seed = 0);
  EqualPages(EqualPages&&) noexcept;
  EqualPages& operator=(EqualPages&&) noexcept;
  ~EqualPages();

  // Reads the private pages in address ranges of a process as the next source. Pages that disappear meanwhile are
  // skipped. Throws OsError if the process has ended or may not be read, and std::logic_error after `compare`.
  PagesRead add(std::uint64_t process, std::span<const ByteRange> addresses);

  // Ends the reading. For each source: the bytes that an earlier source, or an earlier page of it, contains already.
  // Pages that processes share since a fork count once.
  std::vector<Estimate> compare();

  // For each source: bytes of its pages that occur in a block of a file, at any position, and in no block that was
  // taken before: if two files have a page in common, it counts for the first. The last page_bytes() - 1 bytes are
  // positions of the next block.
  std::vector<double> take(Bytes block);

  // Whether `take` would find pages.
  bool occurs(Bytes block);

  static std::size_t page_bytes() noexcept;

 private:
  struct State;
  template <typename Use>
  void find(Bytes block, const Use& use);

  std::unique_ptr<State> state_;
};

}  // namespace onecopy
