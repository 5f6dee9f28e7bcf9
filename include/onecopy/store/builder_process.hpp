// For programs that build in a forked child process.
#pragma once

#include <cstdint>

namespace onecopy {

// Call first in the child: the kernel then kills it when `parent` ends, so that it does not continue beside the process
// that takes over. False: the parent has ended already. Where the system has no such call (only Linux has), the child
// continues.
bool end_with_parent(std::uint64_t parent) noexcept;

}  // namespace onecopy
