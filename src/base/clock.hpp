// The two clocks of reports: durations from the steady clock, times of day from the system clock.
#pragma once

#include <chrono>
#include <cstdint>

namespace onecopy {

inline double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// 2^30 bytes per second; 0 if no time has passed.
constexpr double gib_per_s(std::uint64_t bytes, double seconds) noexcept {
  return seconds > 0 ? static_cast<double>(bytes) / static_cast<double>(1U << 30U) / seconds : 0;
}

// Nanoseconds since 1970-01-01 UTC, as in the times of files.
inline std::int64_t now_ns() {
  return std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace onecopy
