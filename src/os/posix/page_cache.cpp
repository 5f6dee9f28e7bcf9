#include <fcntl.h>
#include <sys/mman.h>

#include "base/rounding.hpp"
#include "os/os.hpp"

// POSIX has no huge pages, and no reliable report of cached pages: the result is "unknown".

namespace onecopy::os {

Outcome advise_huge(Bytes /*memory*/) noexcept { return Outcome::unsupported; }

Outcome advise_random(Bytes memory) noexcept {
  auto* at = const_cast<std::byte*>(memory.data());  // NOLINT(cppcoreguidelines-pro-type-const-cast): contents stay
  const auto length = round_up(memory.size(), page_size());
  return ::posix_madvise(at, length, POSIX_MADV_RANDOM) == 0 ? Outcome::applied : Outcome::refused;
}

int populate(Bytes /*memory*/) noexcept { return ENOSYS; }

int touch(Bytes /*memory*/) noexcept { return ENOSYS; }

int collapse(Bytes /*memory*/) noexcept { return ENOSYS; }

int drop_mapped(Bytes /*memory*/) noexcept { return ENOSYS; }

Result<CacheFacts> cached_in_file(int /*fd*/, ByteRange /*range*/) noexcept { return {{}, ENOSYS}; }

Result<CacheFacts> cached_by_mincore(int /*fd*/, Bytes /*memory*/) noexcept { return {{}, ENOSYS}; }

Result<MappedFacts> mapped_here(Bytes /*memory*/) noexcept { return {{}, ENOSYS}; }

Result<MappedFacts> mapped_by_smaps(Bytes /*memory*/) noexcept { return {{}, ENOSYS}; }

Result<MappedFacts> mapped_there(std::uint64_t /*process*/, ByteRange /*addresses*/) noexcept { return {{}, ENOSYS}; }

Result<std::uint64_t> shared_here(Bytes /*memory*/) noexcept { return {0, ENOSYS}; }

}  // namespace onecopy::os
