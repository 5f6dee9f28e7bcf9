// error: the element type has padding
#include "onecopy/structs/structs.hpp"
struct Node {
  int key = 0;
#ifdef MUST_NOT_COMPILE
  char kind = 0;
#endif
};
struct Index {
  onecopy::OwningSpan<Node> nodes;
};
int main() { onecopy::save("x", Index{}); }
