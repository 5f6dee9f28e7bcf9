#include "onecopy/residency/memory.hpp"

#include "os/os.hpp"

namespace onecopy {

std::optional<AvailableMemory> available_memory() {
  const auto left = os::memory_left();
  if (!left) return std::nullopt;
  return AvailableMemory{left.value.bytes,
                         left.value.group.empty() ? "the machine" : "the control group " + left.value.group};
}

}  // namespace onecopy
