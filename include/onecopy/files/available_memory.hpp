// How much memory this process may still use: the one source for all code that plans its memory use.
//
// Threads: any. Each call reads /proc and the control groups anew; what cannot be read is left out, and nothing is
// thrown for it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace onecopy {

struct AvailableMemory {
  std::uint64_t bytes = 0;
  std::string limited_by;  // "the machine", or "the control group /sys/fs/cgroup/jobs/7"
};

// The minimum of the machine's available memory and of what each control group from this process's own up to the root
// leaves: its limit minus all memory charged to it, siblings included, except page cache that the kernel can drop.
// tmpfs files, memfds and shared memory cannot be dropped. nullopt if the system does not report it (not Linux).
std::optional<AvailableMemory> available_memory();

// Whether `size` more bytes may be used, and as many bytes of working memory (at most 32 MiB, for pages that are being
// read or written).
bool fits(std::uint64_t size, const AvailableMemory& memory);

// Whether a file of `size` bytes is more than half of the available memory: reading it once would displace other files.
constexpr bool is_large(std::uint64_t size, std::uint64_t available) noexcept { return size > available / 2; }

// Throws OsError ENOMEM if `size` more bytes do not fit; the message contains both numbers, the limit, and `instead`,
// the advice to the user (empty: none). Linux overcommits: without this the kernel would end the process.
void expect_memory(std::uint64_t size, const char* operation, const std::filesystem::path& path,
                   const std::string& instead);

// The text of that error: "9 bytes of memory and 9 bytes of working memory are needed, but only 8 may be used (limited
// by the machine)".
std::string shortage(std::uint64_t size, const AvailableMemory& memory);

// The memory charged to a control group that the kernel cannot drop: its usage minus its page cache, in bytes. `group`
// is its directory, `version` the version of control groups, 1 or 2. 0 if the directory is not a control group.
std::uint64_t held_by_group(const std::string& group, int version);

}  // namespace onecopy
