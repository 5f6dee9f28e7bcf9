// The path of a value in a row. A linked list on the stack, from the innermost part outwards: it is converted to text
// only for an error.
#pragma once

#include <cstdint>
#include <string>

#include "bindings.hpp"

namespace onecopy::bindings {

struct Path {
  enum class Step : std::uint8_t { index, key, key_itself, stand_in };
  static constexpr int deepest = 60;  // nested containers, and objects with a plain value

  const Path* above = nullptr;
  PyObject* container = nullptr;  // borrowed; of the row itself: none
  Step step = Step::index;
  int depth = 0;
  Py_ssize_t number = 0;    // in a list; of a key among the keys
  PyObject* key = nullptr;  // borrowed

  // One level deeper. Throws NotShareable beyond the limit.
  Path inside(PyObject* value, Step next) const;
  std::string text() const;  // [12].bbox["x y"][3]; of the value of a dict: ['a'].bbox

 private:
  bool contains(PyObject* object) const noexcept;
};

[[noreturn]] void refuse(const Path& path, const std::string& what);  // NotShareable

}  // namespace onecopy::bindings
