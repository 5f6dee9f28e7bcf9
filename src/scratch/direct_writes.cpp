#include "scratch/direct_writes.hpp"

#include <algorithm>

#include "base/rounding.hpp"

namespace onecopy {

ByteRange DirectWrites::whole_pages(ByteRange range) noexcept {
  const std::uint64_t page = std::max(os::page_size(), os::direct_alignment);
  const std::uint64_t end = range.offset + range.length;
  const std::uint64_t first = round_up(range.offset, page);
  const std::uint64_t last = round_down(end, page);
  return first < last ? ByteRange{first, last - first} : ByteRange{end, 0};
}

bool DirectWrites::takes(Bytes pages) {
  if (refused_ || reinterpret_cast<std::uintptr_t>(pages.data()) % os::direct_alignment != 0) return false;
  std::call_once(opened_, [&] {
    auto made = os::reopen_direct_writable(fd_);
    if (made)
      direct_ = std::move(made.value);
    else
      refused_ = true;
  });
  return !refused_;
}

int DirectWrites::write(Bytes pages, std::uint64_t at) noexcept {
  const auto put = os::write_at(direct_.get(), pages, at);
  if (put) return 0;
  // EINVAL: a device that requires a larger alignment, or a file system that detects the refusal late.
  if (put.error != EINVAL && put.error != EOPNOTSUPP) return put.error;
  refused_ = true;
  return EOPNOTSUPP;
}

}  // namespace onecopy
