// error: an aggregate that cannot be taken apart
#include "onecopy/structs/structs.hpp"
int number = 0;
struct Index {
  int size = 0;
#ifdef MUST_NOT_COMPILE
  int& other = number;
#endif
};
int main() { onecopy::save("x", Index{}); }
