// The version of onecopy. pyproject.toml alone holds the number: CMake reads it, and `onecopy.__version__`, `onecopy
// --version`, find_package and pkg-config report the same.
#pragma once

#include <string_view>

namespace onecopy {

// In Python's notation: "0.1.0", "0.2.0rc1". It is the version of the linked library, not of the headers.
std::string_view version() noexcept;

}  // namespace onecopy
