#include "onecopy/base/environment.hpp"

#include <cstdlib>
#include <initializer_list>

namespace onecopy {
namespace {

// The first of these variables that has a value.
std::string variable(std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (const char* value = std::getenv(name); value != nullptr && *value != '\0')  // NOLINT: see the header
      return value;
  return {};
}

const Environment at_start = Environment::now();  // NOLINT(*-throwing-static-initialization): without memory

}  // namespace

Environment Environment::now() {
  Environment found{.cache = variable({"ONECOPY_CACHE"}),
                    .user_caches = variable({"XDG_CACHE_HOME"}),
                    .home = variable({"HOME"}),
                    .scratch = variable({"ONECOPY_SCRATCH"}),
                    .temporary = variable({"TMPDIR", "TMP", "TEMP", "TEMPDIR"}),
                    .read_timeout = variable({"ONECOPY_READ_TIMEOUT"})};
  if (found.temporary.empty()) found.temporary = "/tmp";
  return found;
}

const Environment& environment_at_start() noexcept { return at_start; }

}  // namespace onecopy
