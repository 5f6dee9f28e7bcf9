// error: deleted
#include "onecopy/arrays/array_file.hpp"

#ifdef MUST_NOT_COMPILE
const onecopy::Index& index() { return onecopy::ArrayFile::open("file").index(); }
#else
const onecopy::Index& index(const onecopy::ArrayFile& file) { return file.index(); }
#endif
