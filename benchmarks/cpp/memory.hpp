// What this process has used so far, as the kernel counts it.
#pragma once

#include <sys/resource.h>

#include <chrono>
#include <cstdint>
#include <fstream>
#include <string>

namespace bench {

using Clock = std::chrono::steady_clock;

inline std::uint64_t nanoseconds_since(Clock::time_point start) {
  return static_cast<std::uint64_t>(std::chrono::nanoseconds(Clock::now() - start).count());
}

struct Memory {
  std::uint64_t anonymous = 0;  // bytes; 0 where there is no /proc
  std::uint64_t max_rss = 0;    // bytes, the highest so far
  std::uint64_t minor_faults = 0;
  std::uint64_t major_faults = 0;
  std::uint64_t cpu_us = 0;

  static Memory now() {
    Memory memory;
    std::ifstream rollup("/proc/self/smaps_rollup");
    for (std::string word; rollup >> word;)
      if (word == "Anonymous:" && rollup >> memory.anonymous) memory.anonymous *= 1024;
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    const auto us = [](const timeval& time) {
      return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000 + static_cast<std::uint64_t>(time.tv_usec);
    };
    memory.max_rss = static_cast<std::uint64_t>(usage.ru_maxrss) * 1024;  // kB on Linux
    memory.minor_faults = static_cast<std::uint64_t>(usage.ru_minflt);
    memory.major_faults = static_cast<std::uint64_t>(usage.ru_majflt);
    memory.cpu_us = us(usage.ru_utime) + us(usage.ru_stime);
    return memory;
  }
};

}  // namespace bench
