// error: an aggregate with a base class
#include "onecopy/structs/structs.hpp"
struct Empty {};
#ifdef MUST_NOT_COMPILE
struct Index : Empty {
#else
struct Index {
#endif
  int size = 0;
  float load = 0;
};
int main() { onecopy::save("x", Index{}); }
