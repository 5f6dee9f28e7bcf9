#include "files/addresses.hpp"

#include "files/page_span.hpp"

namespace onecopy {

os::Result<Addresses> Addresses::reserve(std::size_t size, std::uint64_t file_offset) noexcept {
  constexpr std::size_t least_page = 4096;
  const std::size_t reserved_size = size + os::huge_page - least_page;
  const auto reserved = os::reserve_addresses(reserved_size);
  if (!reserved) return {{}, reserved.error};
  const auto start = reinterpret_cast<std::uintptr_t>(reserved.value);
  const std::uint64_t lead = congruent_after(start, file_offset, os::huge_page) - start;
  os::unmap(reserved.value, lead);
  // Addresses beyond the end stay reserved: they use no memory, and releasing them would be one more system call.
  return {Addresses(reserved.value + lead, reserved_size - lead), 0};
}

}  // namespace onecopy
