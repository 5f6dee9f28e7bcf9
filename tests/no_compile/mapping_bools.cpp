// error: a bool among mapped elements
#include "onecopy/structs/structs.hpp"
struct Index {
#ifdef MUST_NOT_COMPILE
  onecopy::OwningSpan<bool> flags;
#else
  onecopy::OwningSpan<char> flags;
#endif
};
int main() { onecopy::save("x", Index{}); }
