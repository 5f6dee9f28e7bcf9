// A file that no folder shows: gone with its last descriptor, however its processes end.
#pragma once

#include <string>

#include "os/os.hpp"

namespace onecopy {

// Where the file system has no unnamed files it has a name for the time of two calls, and is its owner's alone.
os::Result<os::Fd> create_nameless(int folder);

}  // namespace onecopy
