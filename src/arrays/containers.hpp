// Which format a file of arrays is of, told by its first bytes and never by its name; and what is in it.
#pragma once

#include "onecopy/files/mapping.hpp"
#include "onecopy/formats/index.hpp"

namespace onecopy {

// Throws FormatError without the path, OsError, DataLost. A file that no other format claims is read as safetensors,
// whose header comes through pread: a file that is truncated meanwhile is an error, not a signal. The others are small
// walks through the mapping.
Index read_index(const Mapping& mapping);

}  // namespace onecopy
