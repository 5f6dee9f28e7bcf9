// error: deleted
#include <utility>

#include "onecopy/files/mapping.hpp"

#ifdef MUST_NOT_COMPILE
onecopy::Mapping second(const onecopy::Mapping& mapping) { return mapping; }  // two owners of one address range
#else
onecopy::Mapping second(onecopy::Mapping mapping) { return mapping; }
#endif
