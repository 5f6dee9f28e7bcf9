// Environment variables, read at moments when nothing changes them.
//
// getenv may return memory that another thread's setenv frees, and no library knows who calls setenv. Therefore the
// core reads the environment in one function, and only where its caller can know that nothing changes it: when the
// library is loaded, and when options are made. Python changes the environment with the GIL held, so the bindings make
// options with the GIL held too.
#pragma once

#include <string>

namespace onecopy {

struct Environment {
  std::string cache;         // $ONECOPY_CACHE
  std::string user_caches;   // $XDG_CACHE_HOME
  std::string home;          // $HOME
  std::string scratch;       // $ONECOPY_SCRATCH
  std::string temporary;     // $TMPDIR, or what std::filesystem uses instead
  std::string read_timeout;  // $ONECOPY_READ_TIMEOUT

  static Environment now();  // "" for a variable that is not set
};

// As it was when the library was loaded.
const Environment& environment_at_start() noexcept;

}  // namespace onecopy
