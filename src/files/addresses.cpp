#include "files/addresses.hpp"

#include "files/page_span.hpp"

namespace onecopy {

os::Result<Addresses> Addresses::reserve(std::size_t size, std::uint64_t file_offset) noexcept {
  // With room to move to the place within 2 MiB; the rest is given back at once.
  const auto reserved = os::reserve_addresses(size + os::huge_page);
  if (!reserved) return {{}, reserved.error};
  const auto start = reinterpret_cast<std::uintptr_t>(reserved.value);
  const std::uint64_t lead = congruent_after(start, file_offset, os::huge_page) - start;
  os::unmap(reserved.value, lead);
  os::unmap(reserved.value + lead + size, os::huge_page - lead);
  return {Addresses(reserved.value + lead, size), 0};
}

}  // namespace onecopy
