#include <sys/mman.h>
#include <unistd.h>

#include <atomic>

#include "os/os.hpp"

namespace onecopy::os {
namespace {

std::atomic<std::size_t> pretended_page_size{0};

#if defined(MAP_NORESERVE)
constexpr int no_reserve = MAP_NORESERVE;
#else
constexpr int no_reserve = 0;  // POSIX has no such flag, and leaves open whether space is reserved
#endif

}  // namespace

std::size_t page_size() noexcept {
  static const auto actual = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t pretended = pretended_page_size.load(std::memory_order_relaxed);
  return pretended != 0 ? pretended : actual;
}

void pretend_page_size(std::size_t size) noexcept { pretended_page_size.store(size, std::memory_order_relaxed); }

Result<std::byte*> reserve_addresses(std::size_t size) noexcept {
  void* got = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE | MAP_ANON, -1, 0);
  if (got == MAP_FAILED) return {nullptr, errno};
  return {static_cast<std::byte*>(got), 0};
}

int map_file_at(std::byte* at, std::size_t size, int fd, std::uint64_t offset, Access access) noexcept {
  const int protection = access == Access::write ? PROT_READ | PROT_WRITE : PROT_READ;
  // Without a reserve: what a private copy takes are the pages that are written to, and a file may be larger than
  // memory.
  const int sharing = access == Access::write ? MAP_PRIVATE | no_reserve : MAP_SHARED;
  const void* got = ::mmap(at, size, protection, sharing | MAP_FIXED, fd, static_cast<off_t>(offset));
  return got == MAP_FAILED ? errno : 0;
}

int map_shared_at(std::byte* at, std::size_t size, int fd, std::uint64_t offset) noexcept {
  const void* got = ::mmap(at, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, static_cast<off_t>(offset));
  return got == MAP_FAILED ? errno : 0;
}

int map_heap_at(std::byte* at, std::size_t size, Access access) noexcept {
  const int protection = access == Access::write ? PROT_READ | PROT_WRITE : PROT_READ;
  const void* got = ::mmap(at, size, protection, MAP_PRIVATE | MAP_ANON | MAP_FIXED, -1, 0);
  return got == MAP_FAILED ? errno : 0;
}

int make_read_only(MutableBytes memory) noexcept {
  return ::mprotect(memory.data(), memory.size(), PROT_READ) == 0 ? 0 : errno;
}

int sync_memory(Bytes memory) noexcept {
  auto* at = const_cast<std::byte*>(memory.data());  // NOLINT(cppcoreguidelines-pro-type-const-cast): contents stay
  return ::msync(at, memory.size(), MS_SYNC) == 0 ? 0 : errno;
}

void unmap(std::byte* at, std::size_t size) noexcept {
  if (size != 0) ::munmap(at, size);
}

int lock_memory(Bytes memory) noexcept { return ::mlock(memory.data(), memory.size()) == 0 ? 0 : errno; }

int unlock_memory(Bytes memory) noexcept { return ::munlock(memory.data(), memory.size()) == 0 ? 0 : errno; }

}  // namespace onecopy::os
