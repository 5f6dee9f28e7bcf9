// error: a pointer, a reference or a view of other memory
#include <string_view>

#include "onecopy/structs/structs.hpp"
struct Index {
  int size = 0;
#ifdef MUST_NOT_COMPILE
  std::string_view name;
#endif
};
int main() { onecopy::save("x", Index{}); }
