// error: the type needs a member
#include <string>

#include "onecopy/structs/streams.hpp"

struct Value {
  std::string text;
#ifndef MUST_NOT_COMPILE
  template <class Visitor>
  void visit(Visitor& visitor) {
    visitor.visit(text);
  }
#endif
};

std::size_t read(Value& value) { return onecopy::streams::mmap(value, "file"); }
