// error: static[_ ]assert
#include "onecopy/structs/structs.hpp"
struct Index {
#ifdef MUST_NOT_COMPILE
  unsigned size = 0;
#else
  int size = 0;
#endif
};
static_assert(onecopy::schema_hash<Index>() == 0x3698efdb5a9de432U);
int main() {}
