// The reports of this process: lines of JSON, and its memory, faults and CPU time as the kernel counts them.
#pragma once

#include <sys/resource.h>

#include <chrono>
#include <cstdint>
#include <fstream>
#include <string>
#include <string_view>

namespace bench {

// Numbers by name.
class Json {
 public:
  Json& add(std::string_view name, std::uint64_t number) { return put(name, std::to_string(number)); }
  Json& add(std::string_view name, std::string_view text) { return put(name, "\"" + std::string(text) + "\""); }
  Json& add(std::string_view name, const Json& inner) { return put(name, inner.text()); }

  std::string text() const { return "{" + fields_ + "}"; }

 private:
  Json& put(std::string_view name, const std::string& value) {
    if (!fields_.empty()) fields_ += ", ";
    fields_ += "\"" + std::string(name) + "\": " + value;
    return *this;
  }

  std::string fields_;
};

using Clock = std::chrono::steady_clock;

inline std::uint64_t nanoseconds_since(Clock::time_point start) {
  return static_cast<std::uint64_t>(std::chrono::nanoseconds(Clock::now() - start).count());
}

struct Memory {
  std::uint64_t anonymous = 0;  // bytes; 0 where there is no /proc
  std::uint64_t max_rss = 0;    // the same, the highest so far
  std::uint64_t minor_faults = 0;
  std::uint64_t major_faults = 0;
  std::uint64_t cpu_us = 0;

  static Memory now() {
    Memory memory;
    memory.anonymous = kilobytes("/proc/self/smaps_rollup", "Anonymous:") * 1024;
    memory.max_rss = kilobytes("/proc/self/status", "VmHWM:") * 1024;  // ru_maxrss would be the parent's, if higher
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    const auto us = [](const timeval& time) {
      return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000 + static_cast<std::uint64_t>(time.tv_usec);
    };
    memory.minor_faults = static_cast<std::uint64_t>(usage.ru_minflt);
    memory.major_faults = static_cast<std::uint64_t>(usage.ru_majflt);
    memory.cpu_us = us(usage.ru_utime) + us(usage.ru_stime);
    return memory;
  }

 private:
  static std::uint64_t kilobytes(const char* path, std::string_view name) {
    std::ifstream file(path);
    std::uint64_t found = 0;
    for (std::string word; file >> word;)
      if (word == name && file >> found) break;
    return found;
  }
};

}  // namespace bench
