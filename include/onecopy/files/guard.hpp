// The guard: a page that fails under a view becomes zeros and a recorded loss, instead of the end of the process.
//
//     guard();                            // once, early; for the whole process
//     ... views are read as ever ...
//     check();                            // throws DataLost if anything that was read might have been zeros
//
// A mapped file that somebody truncates, a disk that fails, a network file system that goes away: touching such a page
// raises SIGBUS. With the guard the page, and after a truncation everything behind it, is replaced by zeros in this
// process, the loss is recorded, and the next call on the mapping throws DataLost. Results that were computed between
// the fault and the check are to be thrown away: hence check().
//
// Limits. Only mappings of onecopy are guarded; every other fault goes to the handler that stood there before, and so
// does a signal that a program sends. A system call that is given a lost page (write, send) fails with EFAULT and
// records nothing. The rest of the last page of a truncated file reads as zeros without a fault; check() compares the
// sizes and finds it. A handler that is installed later and does not pass on what is not its own disables the guard:
// call guard() again after it. Python's faulthandler, enabled later, prints its report first, once.
#pragma once

#include <cstdint>

namespace onecopy {

// What a mapping has lost.
struct Loss {
  std::uint64_t offset = 0;  // in the file, of the first byte that is known to be lost
  bool truncated = false;    // the file ended there; false: the page could not be read
};

// Throws OsError when no handler can be installed. Calling it twice is fine.
void guard();

// Throws DataLost, with the path and the offset, for the first mapping that lost bytes: one that is open, each time, or
// one that was closed since, once. Also when no page of a file that became shorter was touched. Threads: any.
void check();

}  // namespace onecopy
