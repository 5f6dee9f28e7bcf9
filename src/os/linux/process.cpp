#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
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

std::string path_in_proc(std::uint64_t process, const char* name) {
  return "/proc/" + std::to_string(process) + "/" + name;
}

// Where process_vm_readv is not allowed or not there, as in some sandboxes. It copies each page twice.
Result<std::size_t> read_by_file(std::uint64_t process, std::span<const ByteRange> ranges, MutableBytes into) {
  auto file = open_read(path_in_proc(process, "mem"));
  if (!file) return {0, file.error};
  std::size_t done = 0;
  for (const auto& range : ranges) {
    const auto got = read_at(file.value.get(), into.subspan(done, range.length), range.offset);
    done += got.value;
    if (got.value < range.length) return {done, done > 0 ? 0 : got.error};
  }
  return {done, 0};
}

}  // namespace

Result<Fd> open_page_map(std::uint64_t process) { return open_read(path_in_proc(process, "pagemap")); }

Result<std::size_t> page_states(int page_map, std::uint64_t first_page, std::span<PageState> into) {
  std::vector<std::uint64_t> entries(into.size());
  const auto got = read_at(page_map, std::as_writable_bytes(std::span(entries)), first_page * sizeof entries[0]);
  const std::size_t count = got.value / sizeof entries[0];
  std::transform(entries.begin(), entries.begin() + static_cast<std::ptrdiff_t>(count), into.begin(), state_of);
  return {count, count > 0 ? 0 : got.error};
}

Result<std::size_t> read_memory(std::uint64_t process, std::span<const ByteRange> ranges, MutableBytes into) {
  std::array<iovec, 256> parts{};
  std::size_t done = 0;
  while (!ranges.empty()) {
    const auto some = ranges.first(std::min(ranges.size(), parts.size()));
    std::size_t wanted = 0;
    for (std::size_t i = 0; i < some.size(); ++i) {
      // The address is in another process. NOLINTNEXTLINE(performance-no-int-to-ptr)
      parts[i] = {reinterpret_cast<void*>(static_cast<std::uintptr_t>(some[i].offset)), some[i].length};
      wanted += some[i].length;
    }
    const iovec here{into.data() + done, wanted};
    const ssize_t got = ::process_vm_readv(static_cast<pid_t>(process), &here, 1, parts.data(), some.size(), 0);
    if (got < 0 && (errno == ENOSYS || errno == EPERM)) return read_by_file(process, ranges, into.subspan(done));
    if (got < 0) return {done, done > 0 ? 0 : errno};
    done += static_cast<std::size_t>(got);
    if (static_cast<std::size_t>(got) < wanted) break;
    ranges = ranges.subspan(some.size());
  }
  return {done, 0};
}

}  // namespace onecopy::os
