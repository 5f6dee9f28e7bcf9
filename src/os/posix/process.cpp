#include "os/os.hpp"

// POSIX has no interface to the memory of another process.

namespace onecopy::os {

Result<Fd> open_memory(std::uint64_t /*process*/) { return {{}, ENOSYS}; }

Result<Fd> open_page_map(std::uint64_t /*process*/) { return {{}, ENOSYS}; }

Result<std::size_t> page_states(int /*page_map*/, std::uint64_t /*first_page*/, std::span<PageState> /*into*/) {
  return {0, ENOSYS};
}

}  // namespace onecopy::os
