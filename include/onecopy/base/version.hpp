// Which onecopy this is. The number stands in pyproject.toml alone: CMake reads it there, and `onecopy.__version__`,
// `onecopy --version`, find_package and pkg-config say the same.
#pragma once

#include <string_view>

namespace onecopy {

// As Python writes it: "0.1.0", "0.2.0rc1". Of the library that is linked, whatever headers were compiled with.
std::string_view version() noexcept;

}  // namespace onecopy
