// error: deleted
#include "onecopy/formats/safetensors.hpp"

#ifdef MUST_NOT_COMPILE
const onecopy::Entry* find(onecopy::Bytes file) { return onecopy::safetensors::parse(file).find("name"); }
#else
const onecopy::Entry* find(const onecopy::Index& index) { return index.find("name"); }
#endif
