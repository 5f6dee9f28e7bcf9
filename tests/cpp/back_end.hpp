// Which half of `os` a program was linked with: the same tests run on both, and some are about what only Linux does.
#pragma once

#include <doctest/doctest.h>

namespace onecopy::testing {

extern const bool on_linux;  // main.cpp is compiled for each program and knows

// TEST_CASE("..." * linux_only())
inline doctest::skip linux_only() { return doctest::skip(!on_linux); }

}  // namespace onecopy::testing
