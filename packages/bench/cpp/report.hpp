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

// Faults and CPU time of this process so far.
struct Used {
  std::uint64_t minor_faults = 0;
  std::uint64_t major_faults = 0;
  std::uint64_t cpu_ms = 0;

  static Used now() {
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    const auto us = [](const timeval& time) {
      return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000 + static_cast<std::uint64_t>(time.tv_usec);
    };
    return {.minor_faults = static_cast<std::uint64_t>(usage.ru_minflt),
            .major_faults = static_cast<std::uint64_t>(usage.ru_majflt),
            .cpu_ms = (us(usage.ru_utime) + us(usage.ru_stime)) / 1000};
  }
};

// The highest resident set so far in bytes, 0 without /proc. ru_maxrss would be the parent's where that is higher.
inline std::uint64_t peak_rss() {
  std::ifstream status("/proc/self/status");
  std::uint64_t kilobytes = 0;
  for (std::string word; status >> word;)
    if (word == "VmHWM:" && status >> kilobytes) break;
  return kilobytes * 1024;
}

}  // namespace bench
