// Looking through a row before anything of it is added: a row that cannot be stored leaves no half of it behind, and
// all code of the caller's (the registry) runs here.
//
// Types are compared exactly, so that what comes back is what went in: a subclass of int is no int. What is none of the
// plain types goes to the registry, or is refused with the path of the value.
#pragma once

#include <string>
#include <vector>

#include "bindings.hpp"
#include "records/numpy_types.hpp"
#include "records/path.hpp"

namespace onecopy::bindings {

// What the registry said of an object.
struct StandIn {
  nb::object object;
  nb::object name;
  nb::object plain;
};

class Checker {
 public:
  // `registry` is called with what is no plain value, and returns (name, plain value) or None.
  Checker(nb::handle registry, NumpyTypes& numpy) : registry_(registry), numpy_(numpy) {}

  // Throws python_error: NotShareable, or what the registry raised, with a note of the path.
  void check_row(PyObject* row, Py_ssize_t number);

  // Of a dict: the key of a pair, which is looked up by its value later.
  static void check_key(PyObject* key, Py_ssize_t number);

  // In the order in which the objects were met.
  const std::vector<StandIn>& stand_ins() const noexcept { return stand_ins_; }

 private:
  void check(PyObject* value, const Path& path);
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
