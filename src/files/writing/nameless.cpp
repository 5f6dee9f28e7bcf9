#include "files/writing/nameless.hpp"

#include <array>
#include <cstdio>
#include <random>

namespace onecopy {

os::Result<os::Fd> create_nameless(int folder) {
  auto unnamed = os::create_unnamed(folder);
  if (unnamed.error != EOPNOTSUPP) return unnamed;
  std::random_device random;
  for (;;) {
    std::array<char, 32> name{};
    std::snprintf(name.data(), name.size(), ".onecopy-%08x%08x", random(), random());
    auto named = os::create_named({folder, name.data()});
    if (named.error == EEXIST) continue;
    if (named) (void)os::remove_file({folder, name.data()});
    return named;
  }
}

}  // namespace onecopy
