// Whether two names or descriptors refer to the same file.
#pragma once

#include "os/os.hpp"

namespace onecopy {

inline bool is_same_file(const os::Result<os::FileFacts>& one, const os::Result<os::FileFacts>& other) noexcept {
  return one && other && one.value.device == other.value.device && one.value.inode == other.value.inode;
}

// Whether the name currently refers to the open file; a symbolic link to it does not.
inline bool is_at(int fd, const os::Name& name) noexcept {
  return is_same_file(os::facts_of(fd), os::facts_of_entry(name));
}

}  // namespace onecopy
