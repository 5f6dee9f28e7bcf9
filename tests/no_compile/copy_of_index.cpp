// error: deleted
#include <utility>

#include "onecopy/formats/index.hpp"

#ifdef MUST_NOT_COMPILE
onecopy::Index second(const onecopy::Index& index) { return index; }  // its names would look into the first one's text
#else
onecopy::Index second(onecopy::Index index) { return index; }
#endif
