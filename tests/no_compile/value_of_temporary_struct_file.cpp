// error: deleted
#include "onecopy/structs/structs.hpp"
struct Index {
  onecopy::OwningSpan<int> words;
};
int main() {
  const auto file = onecopy::open<Index>("x");
  const Index& index = *file;
#ifdef MUST_NOT_COMPILE
  const Index& dangling = *onecopy::open<Index>("x");
  return dangling.words[0];
#endif
  return index.words[0];
}
