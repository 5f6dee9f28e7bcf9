#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <memory>
#include <utility>

#include "base/rounding.hpp"
#include "os/linux/abi.hpp"
#include "os/os.hpp"

namespace onecopy::os {
namespace {

struct CloseFile {
  void operator()(std::FILE* file) const noexcept { std::fclose(file); }
};

// The kernel's page size, also while a test simulates larger pages: a page past the end of the file would be an error.
std::size_t kernel_page() noexcept {
  static const auto size = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return size;
}

// madvise takes whole pages; the last page of the mapping belongs to it entirely.
std::size_t whole_pages(std::size_t length) noexcept { return round_up(length, kernel_page()); }

int advise(Bytes memory, int advice) noexcept {
  // Cast: the kernel's interface is not const, and these advices change no contents.
  auto* at = const_cast<std::byte*>(memory.data());  // NOLINT(cppcoreguidelines-pro-type-const-cast)
  return ::madvise(at, whole_pages(memory.size()), advice) == 0 ? 0 : errno;
}

// Where pages have 16 KiB the kernel's large pages have 32 MiB, and with 64 KiB on ARM64 512 MiB: a fault on memory
// with MADV_HUGEPAGE would read that much, and MADV_COLLAPSE of less does nothing and may report success.
bool huge_pages_fit() noexcept {
  static const bool fit = [] {
    std::uint64_t bytes = 0;
    const std::unique_ptr<std::FILE, CloseFile> file(
        std::fopen("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size", "re"));
    if (file && std::fscanf(file.get(), "%" SCNu64, &bytes) == 1) return bytes == huge_page;
    return kernel_page() * (kernel_page() / sizeof(std::uint64_t)) == huge_page;  // what one page of entries maps
  }();
  return fit;
}

Outcome outcome_of(int error) noexcept {
  if (error == 0) return Outcome::applied;
  return error == EINVAL || error == ENOSYS ? Outcome::unsupported : Outcome::refused;
}

// Whether mincore depends on pages at all: gVisor reports all of them as resident, even memory that was never touched.
bool mincore_samples() noexcept {
  static const bool samples = [] {
    void* const at = ::mmap(nullptr, kernel_page(), PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) return false;
    unsigned char flag = 1;
    const bool answered = ::mincore(at, kernel_page(), &flag) == 0;
    ::munmap(at, kernel_page());
    return answered && (flag & 1U) == 0;
  }();
  return samples;
}

// Whether mincore is truthful: since Linux 5.2 it reports all pages of files that the caller neither owns nor may write
// as resident.
bool mincore_is_honest(int fd) noexcept {
  if (!mincore_samples()) return false;
  if (const auto facts = facts_of(fd); facts && facts.value.owner == user_id()) return true;
  std::array<char, 32> path{};
  std::snprintf(path.data(), path.size(), "/proc/self/fd/%d", fd);
  return ::faccessat(AT_FDCWD, path.data(), W_OK, AT_EACCESS) == 0;
}

Result<MappedFacts> mapped_by_scan(const char* pagemap_path, ByteRange addresses) noexcept {
  const Fd pagemap(::open(pagemap_path, O_RDONLY | O_CLOEXEC));
  if (!pagemap) return {{}, errno};
  std::array<abi::page_region, 256> regions{};
  abi::pagemap_scan_request request{};
  request.size = sizeof request;
  request.start = addresses.offset;
  request.end = request.start + whole_pages(addresses.length);
  request.regions = reinterpret_cast<std::uintptr_t>(regions.data());
  request.region_count = regions.size();
  request.all_of = abi::page_is_present;
  request.returned = abi::page_is_present | abi::page_is_huge;
  MappedFacts facts;
  while (request.start < request.end) {
    // Not ioctl(): its second parameter is an int in musl, and an unsigned long in glibc.
    const long count = ::syscall(SYS_ioctl, pagemap.get(), abi::pagemap_scan, &request);
    if (count < 0) return {{}, errno};
    for (const auto& region : std::span(regions).first(static_cast<std::size_t>(count))) {
      facts.mapped += region.end - region.start;
      if ((region.categories & abi::page_is_huge) != 0) facts.huge += region.end - region.start;
    }
    if (request.walk_end <= request.start) break;  // no progress: nothing more to report
    request.start = request.walk_end;
  }
  return {facts, 0};
}

struct SmapsFacts {
  MappedFacts mapped;
  std::uint64_t shared = 0;
};

// The report of smaps on the mappings inside `memory`. ENODATA where `memory` ends inside a mapping: smaps does not
// split a mapping's numbers.
Result<SmapsFacts> facts_of_smaps(Bytes memory) noexcept {
  const std::unique_ptr<std::FILE, CloseFile> smaps(std::fopen("/proc/self/smaps", "re"));
  if (!smaps) return {{}, errno};
  const auto first = reinterpret_cast<std::uintptr_t>(memory.data());
  const auto last = first + whole_pages(memory.size());
  SmapsFacts facts;
  bool inside = false;
  std::array<char, 4352> line{};  // a region's path is at most PATH_MAX long
  while (std::fgets(line.data(), static_cast<int>(line.size()), smaps.get()) != nullptr) {
    std::uintptr_t start = 0;
    std::uintptr_t end = 0;
    std::uint64_t kib = 0;
    if (std::sscanf(line.data(), "%" SCNxPTR "-%" SCNxPTR " ", &start, &end) == 2) {
      inside = start >= first && end <= last;
      if (!inside && start < last && end > first) return {{}, ENODATA};
    } else if (inside && std::sscanf(line.data(), "Rss: %" SCNu64 " kB", &kib) == 1)
      facts.mapped.mapped += kib * 1024;
    else if (inside && (std::sscanf(line.data(), "FilePmdMapped: %" SCNu64 " kB", &kib) == 1 ||
                        std::sscanf(line.data(), "ShmemPmdMapped: %" SCNu64 " kB", &kib) == 1 ||
                        std::sscanf(line.data(), "AnonHugePages: %" SCNu64 " kB", &kib) == 1))
      facts.mapped.huge += kib * 1024;
    else if (inside && (std::sscanf(line.data(), "Shared_Clean: %" SCNu64 " kB", &kib) == 1 ||
                        std::sscanf(line.data(), "Shared_Dirty: %" SCNu64 " kB", &kib) == 1))
      facts.shared += kib * 1024;
    else if (inside && std::sscanf(line.data(), "Locked: %" SCNu64 " kB", &kib) == 1)
      facts.mapped.locked += kib * 1024;
  }
  return {facts, 0};
}

}  // namespace

Outcome advise_huge(Bytes memory) noexcept {
  return huge_pages_fit() ? outcome_of(advise(memory, MADV_HUGEPAGE)) : Outcome::unsupported;
}

Outcome advise_random(Bytes memory) noexcept { return outcome_of(advise(memory, MADV_RANDOM)); }

int populate(Bytes memory) noexcept {
  int error = 0;
  do error = advise(memory, abi::madv_populate_read);
  while (error == EINTR || error == EAGAIN);  // a signal, or a page that the kernel holds for an instant
  return error == EINVAL || error == EPERM ? ENOSYS : error;  // a kernel before 5.14, or a sandbox
}

int touch(Bytes memory) noexcept {
  constexpr std::size_t pages_a_call = 512;  // IOV_MAX is 1024
  std::array<struct iovec, pages_a_call> pages{};
  std::array<std::byte, pages_a_call> bytes{};
  auto* at = const_cast<std::byte*>(memory.data());  // NOLINT(cppcoreguidelines-pro-type-const-cast): only read
  for (std::size_t done = 0; done < memory.size();) {
    std::size_t count = 0;
    for (; count < pages_a_call && done < memory.size(); ++count, done += kernel_page()) pages[count] = {at + done, 1};
    const struct iovec into{bytes.data(), count};
    const ssize_t read = ::process_vm_readv(::getpid(), &into, 1, pages.data(), count, 0);
    if (read < 0) return errno == EPERM ? ENOSYS : errno;
    if (std::cmp_less(read, count)) return EFAULT;
  }
  return 0;
}

int collapse(Bytes memory) noexcept {
  if (!huge_pages_fit()) return ENOSYS;
  const int error = advise(memory, abi::madv_collapse);
  // EINVAL has two causes: this memory cannot be collapsed, or the kernel does not know the advice. The advice on an
  // empty range distinguishes them.
  const bool unknown = error == EINVAL && advise(memory.first(0), abi::madv_collapse) == EINVAL;
  return unknown ? ENOSYS : error;
}

int drop_mapped(Bytes memory) noexcept { return advise(memory, MADV_DONTNEED); }

Result<CacheFacts> cached_in_file(int fd, ByteRange range) noexcept {
  const abi::cachestat_range asked{range.offset, range.length};
  abi::cachestat_pages pages{};
  if (::syscall(abi::cachestat_number, fd, &asked, &pages, 0U) != 0) return {{}, errno};
  if (pages.cached == 0)
    if (const auto system = file_system_of(fd); system && system.value.stacked) return {{}, EOPNOTSUPP};
  return {{pages.cached * kernel_page(), (pages.dirty + pages.writeback) * kernel_page(), pages.evicted * kernel_page(),
           pages.recently_evicted * kernel_page()},
          0};
}

Result<CacheFacts> cached_by_mincore(int fd, Bytes memory) noexcept {
  if (!mincore_is_honest(fd)) return {{}, EPERM};
  std::array<unsigned char, 16384> flags{};          // one byte a page
  auto* at = const_cast<std::byte*>(memory.data());  // NOLINT(cppcoreguidelines-pro-type-const-cast)
  CacheFacts facts;
  for (std::size_t left = memory.size(); left > 0;) {
    const std::size_t step = std::min(left, flags.size() * kernel_page());
    if (::mincore(at, step, flags.data()) != 0) return {{}, errno};
    const auto pages = std::span(flags).first(whole_pages(step) / kernel_page());
    for (const unsigned char flag : pages) facts.cached += (flag & 1U) != 0 ? kernel_page() : 0;
    at += step;
    left -= step;
  }
  return {facts, 0};
}

Result<MappedFacts> mapped_here(Bytes memory) noexcept {
  return mapped_by_scan("/proc/self/pagemap", {reinterpret_cast<std::uintptr_t>(memory.data()), memory.size()});
}

Result<MappedFacts> mapped_by_smaps(Bytes memory) noexcept {
  const auto facts = facts_of_smaps(memory);
  return {facts.value.mapped, facts.error};
}

Result<MappedFacts> mapped_there(std::uint64_t process, ByteRange addresses) noexcept {
  std::array<char, 48> path{};
  std::snprintf(path.data(), path.size(), "/proc/%" PRIu64 "/pagemap", process);
  return mapped_by_scan(path.data(), addresses);
}

Result<std::uint64_t> shared_here(Bytes memory) noexcept {
  const auto answer = facts_of_smaps(memory);
  return {answer.value.shared, answer.error};
}

}  // namespace onecopy::os
