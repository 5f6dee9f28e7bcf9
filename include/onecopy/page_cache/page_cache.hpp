// page_cache: which bytes of a mapping are in memory, and how to bring in or evict more. Contents never change here.
//
//     const WarmReport report = warm(mapping);  // all of it, now, at the device's speed
//     evict(mapping);                           // out of the page cache again
//
// Ranges are bytes of `mapping.bytes()`, rounded outwards to whole pages. The report shows hints that the kernel
// declines; these are never errors. A file that has lost bytes is an error, `DataLost`. Threads: any; calls on one
// mapping may overlap.
#pragma once

#include <span>

#include "onecopy/base/bytes.hpp"
#include "onecopy/files/mapping.hpp"
#include "onecopy/page_cache/report.hpp"

namespace onecopy {

Residency residency(const Mapping& mapping, Ranges ranges = everything);

// The page cache of `range` of an open file that is not mapped; `everything`: of the whole file. Takes 0.1 ms per GiB.
// Throws OsError if the kernel does not report it: EPERM for a file that this process neither owns nor may write,
// ENOSYS before Linux 6.5, EOPNOTSUPP for hugetlbfs. Never uses mincore, which reports all pages of another user's file
// as resident.
PageCache cachestat(int descriptor, std::optional<ByteRange> range = everything);

// The part of an address range that is in the page tables of another process. Takes 0.5 ms per GiB. Throws OsError:
// ESRCH (or ENOENT) if the process has ended, EACCES if it belongs to another user, ENOTTY before Linux 6.7.
MappedPages mapped_in(std::uint64_t process, ByteRange addresses);

// Removes pages from this process and, if no other process maps them, from the page cache. Private pages and memory
// files stay, because they have no backing store.
EvictReport evict(const Mapping& mapping, Ranges ranges = everything);

// Moves resident pages into 2 MiB pages, for every process that maps the file (MADV_COLLAPSE, Linux 6.1): memory files,
// regardless of /sys/kernel/mm/transparent_hugepage, and private copies. Files on disks get 2 MiB pages while `warm`
// reads them.
CollapseReport collapse(const Mapping& mapping, Ranges ranges = everything);

// From now on, access to one of these pages reads no other pages: no read-ahead (MADV_RANDOM). For queries that touch
// single pages of a file that is larger than memory, where read-ahead pages are evicted before they are used. Harmful
// otherwise: a cold file is then read page by page, at a tenth of the device's speed or less, and stays in small pages
// for every process. Not for private copies, which are in memory.
Outcome advise_random(const Mapping& mapping, Ranges ranges = everything);

// Locks pages into memory until unpin or the mapping's end; bounded by RLIMIT_MEMLOCK (often 8 MiB).
PinReport pin(const Mapping& mapping, Ranges ranges = everything);
void unpin(const Mapping& mapping, Ranges ranges = everything);

// Registers pages with the NVIDIA driver, as CUDA's pinned host memory: until the mapping's end they stay in memory,
// still one copy for all processes, and a GPU reads them directly, at the speed of its link. Pages that are not in
// memory are read one by one: call `warm` first. Uses the CUDA context of this thread, else that of the first device.
// Throws OsError: ENODEV without GPU or driver, EOPNOTSUPP if they cannot register read-only memory, EINVAL for private
// pages, EBUSY if pages are registered already. `only_tried`: EOPNOTSUPP also for file systems on which this was not
// tried; some drivers reportedly hang on pages of xfs.
void register_with_cuda(const Mapping& mapping, Ranges ranges = everything, bool only_tried = false);

}  // namespace onecopy
