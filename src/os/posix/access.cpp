#include <fcntl.h>
#include <unistd.h>

#include "os/os.hpp"

namespace onecopy::os {

Result<Fd> create_unnamed(const std::string& /*folder*/) noexcept { return {{}, EOPNOTSUPP}; }

Result<Fd> create_named(const std::string& path) noexcept {
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0) return {{}, errno};
  return {Fd(fd), 0};
}

int link_unnamed(int /*fd*/, const std::string& /*path*/) { return EOPNOTSUPP; }

Result<Fd> create_sealable(const std::string& /*name*/) { return {{}, EOPNOTSUPP}; }

int seal(int /*fd*/) noexcept { return EOPNOTSUPP; }

bool is_sealed(int /*fd*/) noexcept { return false; }

int reserve_space(int fd, ByteRange range) noexcept {
  return ::posix_fallocate(fd, static_cast<off_t>(range.offset), static_cast<off_t>(range.length));
}

Outcome start_writeback(int /*fd*/, ByteRange /*range*/) noexcept { return Outcome::unsupported; }

int write_out(int fd, ByteRange /*range*/) noexcept { return sync_file(fd); }

Result<Fd> reopen_direct(int /*fd*/) { return {{}, EOPNOTSUPP}; }

Result<Fd> reopen_direct_writable(int /*fd*/) { return {{}, EOPNOTSUPP}; }

Result<Fd> reopen_read(int /*fd*/) { return {{}, EOPNOTSUPP}; }

}  // namespace onecopy::os
