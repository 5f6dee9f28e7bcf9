// error: deleted
#include "onecopy/structs/structs.hpp"
struct Index {
  onecopy::OwningSpan<int> words;
};
int main() {
  const auto file = onecopy::open<Index>("x");
#ifdef MUST_NOT_COMPILE
  return onecopy::open<Index>("x")->words[0];
#endif
  return file->words[0];
}
