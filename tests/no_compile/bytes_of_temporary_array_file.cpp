// error: deleted
#include "onecopy/arrays/array_file.hpp"

#ifdef MUST_NOT_COMPILE
onecopy::Bytes weights() { return onecopy::ArrayFile::open("file").bytes("weights"); }
#else
onecopy::Bytes weights(const onecopy::ArrayFile& file) { return file.bytes("weights"); }
#endif
