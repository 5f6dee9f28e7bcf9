// The guard: a page that fails under a view becomes zeros and a recorded loss; the process continues.
//
//     guard();                            // once, early; for the whole process
//     ... views are read as usual ...
//     check();                            // throws DataLost if anything that was read might have been zeros
//
// Another process truncates a mapped file, a disk fails, a network file system goes away: touching such a page raises
// SIGBUS. With the guard the page, and after a truncation every page behind it, is replaced by zeros in this process,
// the loss is recorded, and the next call on the mapping throws DataLost. Results that were computed between the fault
// and the check must be discarded: hence check().
//
// Limits. Only mappings of onecopy are guarded; the guard passes every other fault, and every signal that a program
// sends, to the handler that was installed before. A system call on a lost page (write, send) fails with EFAULT and
// records nothing. The rest of the last page of a truncated file reads as zeros without a fault; check() compares the
// sizes and detects it. A handler that is installed later and does not forward foreign signals disables the guard: call
// guard() again after it. Python's faulthandler, enabled later, first prints its report once.
#pragma once

#include <cstdint>

namespace onecopy {

// The bytes that a mapping has lost.
struct Loss {
  std::uint64_t offset = 0;  // in the file, of the first byte that is known to be lost
  bool truncated = false;    // the file was truncated to this offset; false: the page could not be read
};

// Throws OsError when no handler can be installed. Calling it twice is fine.
void guard();

// Throws DataLost, with the path and the offset, for the first mapping that lost bytes: for an open mapping at every
// call, for a closed mapping once. Also when no page of a shortened file was touched. Any thread may call it.
void check();

}  // namespace onecopy
