// How much memory may still be used: the one answer for all who ask.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace onecopy {

struct AvailableMemory {
  std::uint64_t bytes = 0;
  std::string limited_by;  // "the machine", or "the control group /sys/fs/cgroup/jobs/7"
};

// What the machine has available, or less where a control group of this process, or one above it, leaves less: its
// limit less all that is charged to it, siblings included, but for page cache that the kernel can drop. Files in memory
// and shared memory cannot be dropped. None where the system does not say.
std::optional<AvailableMemory> available_memory();

}  // namespace onecopy
