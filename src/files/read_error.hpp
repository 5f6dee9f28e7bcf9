// What a failed read of a file becomes: DataLost where the device failed or the file ends early, OsError for every
// other reason.
#pragma once

#include <cerrno>
#include <cstdint>
#include <string>

#include "onecopy/base/error.hpp"

namespace onecopy {

// `error`: ENODATA where the file ended before the read did. `offset`: in the file, where the read began.
[[noreturn]] inline void throw_read_error(const char* operation, const std::string& path, int error,
                                          std::uint64_t offset) {
  if (error == EIO)
    throw DataLost(operation, path, EIO, "the device could not read the file near offset " + std::to_string(offset),
                   offset);
  if (error == ENODATA) throw DataLost(operation, path, EIO, "the file became shorter after it was opened", offset);
  throw OsError(operation, path, error);
}

}  // namespace onecopy
