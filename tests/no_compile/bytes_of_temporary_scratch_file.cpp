// error: deleted
#include "onecopy/scratch/scratch_file.hpp"

std::size_t size(onecopy::ScratchFile& file) {
#ifdef MUST_NOT_COMPILE
  return onecopy::ScratchFile::create(1).bytes().size();  // the file would be gone before the size is read
#else
  return file.bytes().size();
#endif
}
