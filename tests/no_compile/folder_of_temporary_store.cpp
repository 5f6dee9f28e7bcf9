// error: deleted
#include "onecopy/store/store.hpp"

std::size_t length(const onecopy::Store& store) {
#ifdef MUST_NOT_COMPILE
  return onecopy::Store::open("folder").folder().native().size();  // the path would be gone before it is read
#else
  return store.folder().native().size();
#endif
}
