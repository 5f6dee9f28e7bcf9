// Where in a row a value is. A chain on the stack, from the inside out: it becomes text where something is wrong, and
// costs nothing before.
#pragma once

#include <cstdint>
#include <string>

#include "bindings.hpp"

namespace onecopy::bindings {

struct Path {
  enum class Step : std::uint8_t { index, key, key_itself, stand_in };
  static constexpr int deepest = 60;  // containers in each other, and objects that something stands in for

  const Path* above = nullptr;
  PyObject* container = nullptr;  // borrowed; of the row itself: none
  Step step = Step::index;
  int depth = 0;
  Py_ssize_t number = 0;    // in a list; of a key among the keys
  PyObject* key = nullptr;  // borrowed

  // One level further in. Throws NotShareable where that is too deep.
  Path inside(PyObject* value, Step next) const;
  std::string text() const;  // [12].bbox["x y"][3]

 private:
  bool contains(PyObject* object) const noexcept;
};

[[noreturn]] void refuse(const Path& path, const std::string& what);  // NotShareable

}  // namespace onecopy::bindings
