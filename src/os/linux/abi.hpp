// Kernel interfaces that are newer than the C library's headers on some build machines: numbers and layouts from the
// kernel's documentation (cachestat(2), Linux 6.5; Documentation/admin-guide/mm/pagemap.rst, Linux 6.7). A kernel that
// lacks one returns ENOSYS or ENOTTY at run time.
#pragma once

#include <sys/ioctl.h>

#include <cstdint>

namespace onecopy::os::abi {

inline constexpr long cachestat_number = 451;  // the same on every architecture: added after the unification

struct cachestat_range {
  std::uint64_t offset;
  std::uint64_t length;  // 0: to the end of the file
};

struct cachestat_pages {
  std::uint64_t cached;
  std::uint64_t dirty;
  std::uint64_t writeback;
  std::uint64_t evicted;
  std::uint64_t recently_evicted;
};

struct page_region {
  std::uint64_t start;
  std::uint64_t end;
  std::uint64_t categories;
};

struct pagemap_scan_request {
  std::uint64_t size;
  std::uint64_t flags;
  std::uint64_t start;
  std::uint64_t end;
  std::uint64_t walk_end;  // out: where the kernel stopped
  std::uint64_t regions;   // address of an array of page_region
  std::uint64_t region_count;
  std::uint64_t most_pages;
  std::uint64_t inverted;
  std::uint64_t all_of;
  std::uint64_t any_of;
  std::uint64_t returned;  // the categories to report
};

inline constexpr std::uint64_t page_is_present = 1U << 3U;
inline constexpr std::uint64_t page_is_huge = 1U << 6U;
inline constexpr unsigned long pagemap_scan = _IOWR('f', 16, pagemap_scan_request);

inline constexpr int madv_populate_read = 22;   // Linux 5.14
inline constexpr int madv_collapse = 25;        // Linux 6.1
inline constexpr unsigned mfd_noexec_seal = 8;  // Linux 6.3

}  // namespace onecopy::os::abi
