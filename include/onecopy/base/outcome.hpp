// The result of a request that the system may decline. Every hint reports its outcome; none fails silently.
#pragma once

#include <cstdint>
#include <string_view>

namespace onecopy {

enum class Outcome : std::uint8_t {
  applied,      // the kernel accepted it
  refused,      // the kernel knows the request and declined it (limits, permission, wrong kind of memory)
  unsupported,  // this kernel or platform has no such request
};

constexpr std::string_view to_string(Outcome outcome) noexcept {
  switch (outcome) {
    case Outcome::applied: return "applied";
    case Outcome::refused: return "refused";
    case Outcome::unsupported: return "unsupported";
  }
  return "unknown";
}

}  // namespace onecopy
