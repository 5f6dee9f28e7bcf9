// residency: which bytes of a mapping are in memory, and how to bring in or evict more. Contents never change here.
//
//     const WarmReport report = warm(mapping, {});       // all of it, now, at the device's speed
//     evict(mapping, {});                                // out of the page cache again
//
// Ranges are bytes of `mapping.bytes()`, rounded outwards to whole pages; an empty list means all of it. A hint that
// the kernel declines is in the report and never an error; a file that lost bytes meanwhile is `DataLost`.
// Threads: any; calls on one mapping may overlap.
#pragma once

#include <span>

#include "onecopy/base/bytes.hpp"
#include "onecopy/files/mapping.hpp"
#include "onecopy/residency/report.hpp"

namespace onecopy {

Residency residency(const Mapping& mapping, std::span<const ByteRange> ranges = {});

// The same of a file that is only open, not mapped; length 0: to its end. 0.1 ms per GiB. Throws OsError where the
// kernel does not report it: EPERM for a file that this process neither owns nor may write, ENOSYS before Linux 6.5,
// EOPNOTSUPP for hugetlbfs. Never an answer of mincore, which calls all pages of another user's file resident.
PageCache page_cache(int descriptor, ByteRange range = {});

// What of a stretch of addresses another process has in its page tables: 0.5 ms per GiB. Throws OsError: ESRCH (or
// ENOENT) it has ended, EACCES it belongs to another user, ENOTTY before Linux 6.7.
MappedPages mapped_in(std::uint64_t process, ByteRange addresses);

// Takes pages out of this process and, where no other process holds them, out of the page cache. Private pages stay,
// and memory files, which have no other place.
EvictReport evict(const Mapping& mapping, std::span<const ByteRange> ranges = {});

// Moves what is in memory into 2 MiB pages, for every process that maps the file (MADV_COLLAPSE, Linux 6.1): memory
// files, whatever /sys/kernel/mm/transparent_hugepage says, and private copies. Files on disks get theirs while they
// are read, by `warm`.
CollapseReport collapse(const Mapping& mapping, std::span<const ByteRange> ranges = {});

// From now on a touch of these pages reads them alone, and not what the device reads ahead (MADV_RANDOM). For queries
// that touch single pages of a file that memory cannot hold: there, what is read ahead is dropped before it is used. A
// trap anywhere else: a cold file is then read page by page, at a tenth of the device's speed or less, and stays in
// small pages for every process. Not of private copies, which are in memory.
Outcome advise_random(const Mapping& mapping, std::span<const ByteRange> ranges = {});

// Locks pages into memory until unpin or the mapping's end; bounded by RLIMIT_MEMLOCK (often 8 MiB).
PinReport pin(const Mapping& mapping, std::span<const ByteRange> ranges = {});
void unpin(const Mapping& mapping, std::span<const ByteRange> ranges = {});

}  // namespace onecopy
