// Which back end of `os` a program was linked with: the same tests run on both, and some need what only Linux does.
#pragma once

#include <doctest/doctest.h>

namespace onecopy::testing {

extern const bool on_linux;  // back_end.cpp, compiled once for each back end

// TEST_CASE("..." * linux_only())
inline doctest::skip linux_only() { return doctest::skip(!on_linux); }

// Reports a case that cannot run here: main.cpp counts it, and writes it to the file that $ONECOPY_SKIPS names.
void report_skip(const char* reason);

}  // namespace onecopy::testing

// Ends the running test case as skipped; doctest itself can skip a case only before it starts.
#define SKIP_CASE(reason)                    \
  do {                                       \
    ::onecopy::testing::report_skip(reason); \
    return;                                  \
  } while (false)
