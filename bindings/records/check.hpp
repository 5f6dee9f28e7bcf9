// Validates a row before any part of it is added: a row that cannot be stored adds nothing, and all user code (the
// registry) runs here.
//
// Types are compared exactly, so that decoding returns the type that was encoded: a subclass of int is not an int. An
// object of any other type goes to the registry, or is refused with the path of the value.
#pragma once

#include <string>
#include <vector>

#include "bindings.hpp"
#include "records/numpy_types.hpp"
#include "records/path.hpp"

namespace onecopy::bindings {

// The registry's result for an object.
struct StandIn {
  nb::object object;
  nb::object name;
  nb::object plain;
};

class Checker {
 public:
  // `registry` is called with an object that is not a plain value, and returns (name, plain value) or None.
  Checker(nb::handle registry, NumpyTypes& numpy) : registry_(registry), numpy_(numpy) {}

  // Throws python_error: NotShareable, or an error of the registry, with a note of the path.
  // `of_dict`: the row may be a pair of a key, which is looked up by its value later, and a value.
  void check_row(PyObject* row, Py_ssize_t number, bool of_dict);

  // In the order in which the objects were met.
  const std::vector<StandIn>& stand_ins() const noexcept { return stand_ins_; }

 private:
  void check(PyObject* value, const Path& path);
  void check_pair(PyObject* pair, Py_ssize_t number);
  void check_list(PyObject* list, const Path& path);
  void check_tuple(PyObject* tuple, const Path& path);
  void check_dict(PyObject* dict, const Path& path);
  void check_other(PyObject* value, const Path& path);
  nb::object ask_registry(PyObject* value, const Path& path) const;

  nb::handle registry_;
  NumpyTypes& numpy_;
  std::vector<StandIn> stand_ins_;
};

}  // namespace onecopy::bindings
