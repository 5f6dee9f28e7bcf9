// error: (read-only|const)
#include "onecopy/files/mapping.hpp"

void change([[maybe_unused]] onecopy::Mapping& mapping) {
#ifdef MUST_NOT_COMPILE
  mapping.bytes()[0] = std::byte{1};
#else
  mapping.private_bytes()[0] = std::byte{1};
#endif
}
