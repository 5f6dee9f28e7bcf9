// For programs that build in a forked child.
#pragma once

#include <cstdint>

namespace onecopy {

// In the child, first: it is killed when `parent` ends, so that it does not build on beside the one that takes over.
// False: the parent is gone already. Where the system cannot (only Linux can), the child lives on.
bool end_with_parent(std::uint64_t parent) noexcept;

}  // namespace onecopy
