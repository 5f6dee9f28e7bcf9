// Memory files, and what this machine, or the policy of this sandbox, lets the tests expect of them; asked without
// onecopy.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include "back_end.hpp"
#include "onecopy/files/memory_file_writer.hpp"

namespace onecopy::testing {

// Not on the portable back end, which makes no Linux calls.
inline bool has_memory_files() {
#ifdef __linux__
  if (!on_linux) return false;
  const int fd = ::memfd_create("probe", MFD_ALLOW_SEALING | MFD_CLOEXEC);
  if (fd >= 0) ::close(fd);
  return fd >= 0;
#else
  return false;
#endif
}

inline Mapping memory_file(Bytes content) {
  MemoryFileWriter writer("content", content.size());
  writer.write(content);
  writer.commit();
  return writer.open();
}

}  // namespace onecopy::testing
