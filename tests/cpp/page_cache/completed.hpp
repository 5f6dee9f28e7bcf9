#pragma once

#include <cstdint>

#include "onecopy/page_cache/warm.hpp"

namespace onecopy::testing {

// Kernels that search for idle pages (DAMON) evict some within milliseconds, and without cachestat they are not
// counted.
constexpr std::uint64_t nearly(std::uint64_t bytes) { return bytes - bytes / 8; }

// Warming brought in everything, whatever the kernel dropped again before the end.
inline bool completed(const WarmReport& report) {
  return report.complete || (report.cached_after && *report.cached_after >= nearly(report.bytes));
}

}  // namespace onecopy::testing
