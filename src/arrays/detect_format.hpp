// Detects the format of a file of arrays by its first bytes, never by its name, and reads its index.
#pragma once

#include "onecopy/arrays/array_file.hpp"
#include "onecopy/files/mapping.hpp"
#include "onecopy/formats/index.hpp"

namespace onecopy {

// Throws FormatError without the path, OsError, DataLost. A file that no other format recognises is read as
// safetensors, whose header is read by pread: a truncated file is an error, not a signal. The other formats are parsed
// through the mapping.
Index read_index(const Mapping& mapping, ShardIndex index);

}  // namespace onecopy
