// error: (discards qualifiers|not viable)
#include "onecopy/files/mapping.hpp"

#ifdef MUST_NOT_COMPILE
std::span<std::byte> writable(const onecopy::Mapping& mapping) { return mapping.private_bytes(); }
#else
std::span<std::byte> writable(onecopy::Mapping& mapping) { return mapping.private_bytes(); }
#endif
