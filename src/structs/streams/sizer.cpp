#include "onecopy/structs/streams/sizer.hpp"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

namespace onecopy::streams {

std::string demangle(const char* mangled_name) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> name(abi::__cxa_demangle(mangled_name, nullptr, nullptr, &status),
                                                         &std::free);
  return status == 0 ? name.get() : mangled_name;
}

std::size_t sizer::enter(std::string_view name) {
  auto& children = current_->children;
  const auto begin = children.begin() + static_cast<std::ptrdiff_t>(std::min(current_->next, children.size()));
  auto child = std::find_if(begin, children.end(), [&](const node& known) { return known.name == name; });
  if (child == children.end())
    child = children.insert(child, node{0, current_->depth + 1, std::string(name), 0, {}, 0});
  current_->next = static_cast<std::size_t>(child - children.begin()) + 1;
  child->next = 0;
  ++child->count;
  current_ = &*child;
  return child->bytes;
}

}  // namespace onecopy::streams
