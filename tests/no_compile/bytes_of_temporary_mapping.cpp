// error: deleted
#include "onecopy/files/mapping.hpp"

std::size_t size(const onecopy::Mapping& mapping) {
#ifdef MUST_NOT_COMPILE
  return onecopy::Mapping::open("file").bytes().size();  // the mapping would be gone before the size is read
#else
  return mapping.bytes().size();
#endif
}
