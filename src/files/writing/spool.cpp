#include "files/writing/spool.hpp"

#include <algorithm>
#include <utility>

#include "files/writing/nameless.hpp"
#include "onecopy/base/error.hpp"
#include "onecopy/files/available_memory.hpp"

namespace onecopy {

std::uint64_t Spool::append(Bytes bytes) {
  if (bytes.size() > held - tail_.size()) {
    write(tail_);
    tail_.clear();
  }
  const std::uint64_t at = size();
  if (bytes.size() > held) {
    write(bytes);
  } else {
    tail_.insert(tail_.end(), bytes.begin(), bytes.end());
  }
  return at;
}

void Spool::write(Bytes bytes) {
  if (folder_.empty()) expect_memory(bytes.size(), "spool", "", "");
  if (!fd_) {
    auto file = folder_.empty() ? os::create_sealable("onecopy spool") : os::Result<os::Fd>{{}, EOPNOTSUPP};
    if (file.error == EOPNOTSUPP) file = create_nameless(folder_.empty() ? "/dev/shm" : folder_);
    if (!file) fail("create a spool file in", file.error);
    fd_ = std::move(file.value);
  }
  if (const auto result = os::write_at(fd_.get(), bytes, written_); !result)
    fail("write to a spool file in", result.error);
  written_ += bytes.size();
}

void Spool::read(std::uint64_t offset, std::span<std::byte> into) const {
  const std::uint64_t first = offset < written_ ? std::min<std::uint64_t>(into.size(), written_ - offset) : 0;
  if (first != 0) {
    const auto result = os::read_at(fd_.get(), into.first(first), offset);
    if (!result || result.value != first) fail("read a spool file in", result ? EIO : result.error);
  }
  const auto from = tail_.begin() + static_cast<std::ptrdiff_t>(std::max(offset, written_) - written_);
  std::copy_n(from, into.size() - first, into.begin() + static_cast<std::ptrdiff_t>(first));
}

void Spool::fail(const char* operation, int error) const {
  throw OsError(operation, folder_.empty() ? "memory" : folder_, error);
}

}  // namespace onecopy
