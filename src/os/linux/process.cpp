#include <algorithm>
#include <string>
#include <vector>

#include "os/os.hpp"

namespace onecopy::os {
namespace {

// Documentation/admin-guide/mm/pagemap.rst
constexpr std::uint64_t frame_bits = (std::uint64_t{1} << 55U) - 1;
constexpr unsigned exclusive_bit = 56;  // since Linux 4.2
constexpr unsigned file_bit = 61;       // a page of a file, or shared memory
constexpr unsigned swapped_bit = 62;
constexpr unsigned present_bit = 63;

bool has(std::uint64_t entry, unsigned bit) noexcept { return ((entry >> bit) & 1U) != 0; }

PageState state_of(std::uint64_t entry) noexcept {
  return {.frame = has(entry, present_bit) ? entry & frame_bits : 0,
          .is_present = has(entry, present_bit),
          .is_swapped = has(entry, swapped_bit),
          .is_anonymous = !has(entry, file_bit),
          .is_shared = !has(entry, exclusive_bit)};
}

Result<Fd> open_in_proc(std::uint64_t process, const char* name) {
  return open_read("/proc/" + std::to_string(process) + "/" + name);
}

}  // namespace

Result<Fd> open_memory(std::uint64_t process) { return open_in_proc(process, "mem"); }

Result<Fd> open_page_map(std::uint64_t process) { return open_in_proc(process, "pagemap"); }

Result<std::size_t> page_states(int page_map, std::uint64_t first_page, std::span<PageState> into) {
  std::vector<std::uint64_t> entries(into.size());
  const auto got = read_at(page_map, std::as_writable_bytes(std::span(entries)), first_page * sizeof entries[0]);
  const std::size_t count = got.value / sizeof entries[0];
  std::transform(entries.begin(), entries.begin() + static_cast<std::ptrdiff_t>(count), into.begin(), state_of);
  return {count, count > 0 ? 0 : got.error};
}

}  // namespace onecopy::os
