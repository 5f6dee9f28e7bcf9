// error: a pointer, a reference or a view of other memory
#include "onecopy/structs/structs.hpp"
struct Index {
  int size = 0;
#ifdef MUST_NOT_COMPILE
  int* words = nullptr;
#endif
};
int main() { onecopy::save("x", Index{}); }
