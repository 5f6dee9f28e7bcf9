// error: deleted
#include <vector>

#include "onecopy/structs/owning_span.hpp"
int main() {
  const onecopy::OwningSpan<int> words = std::vector<int>{1};
#ifdef MUST_NOT_COMPILE
  const auto look = onecopy::OwningSpan<int>(std::vector<int>{1}).span();
#else
  const auto look = words.span();
#endif
  return look[0];
}
