// error: an enum without a fixed underlying type
#include "onecopy/structs/structs.hpp"
#ifdef MUST_NOT_COMPILE
enum Kind { one, two };
#else
enum Kind : unsigned char { one, two };
#endif
struct Index {
  Kind kind = one;
};
int main() { onecopy::save("x", Index{}); }
