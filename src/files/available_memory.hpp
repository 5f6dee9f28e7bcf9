// The answer of onecopy::available_memory() for any tree of /proc and /sys, so that tests can use their own.
#pragma once

#include <optional>
#include <string>

#include "onecopy/files/available_memory.hpp"

namespace onecopy {

// `root` is put in front of "/proc/meminfo", "/proc/self/cgroup" and "/sys/fs/cgroup".
std::optional<AvailableMemory> available_memory_below(const std::string& root);

}  // namespace onecopy
