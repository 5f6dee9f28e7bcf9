// The place of a scratch file, and its creation there.
#pragma once

#include <cstdint>
#include <string>

#include "onecopy/scratch/scratch_file.hpp"
#include "os/os.hpp"

namespace onecopy {

struct ScratchFolder {
  std::string folder;
  std::string reason;  // a sentence
};

// As ScratchOptions::folder describes for an empty one.
ScratchFolder default_place(const Environment& environment);

// Why data larger than memory should not be there; empty: it may be.
std::string obstacle_of(const os::FileSystem& system);

struct PlacedFile {
  os::Fd fd;
  ScratchFolder place;
  bool in_memory = false;  // a file system without a disk: nothing can be written out
  bool linkable = false;   // may get a name later
};

// A nameless file of `size` bytes, reserved if asked for. Throws OsError, as ScratchFile::create says.
PlacedFile create_placed(std::uint64_t size, const ScratchOptions& options);

}  // namespace onecopy
