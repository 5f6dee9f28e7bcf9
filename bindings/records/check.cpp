#include "records/check.hpp"

#include <nanobind/stl/string.h>

#include <string>
#include <utility>

#include "records/key_hashes.hpp"

namespace onecopy::bindings {
namespace {

std::string type_name(PyObject* value) {
  const nb::handle type(reinterpret_cast<PyObject*>(Py_TYPE(value)));  // NOLINT: CPython's own inheritance
  const auto name = nb::cast<std::string>(nb::str(type.attr("__qualname__")));
  const auto module = nb::cast<std::string>(nb::str(type.attr("__module__")));
  return module == "builtins" ? name : module + "." + name;
}

bool is_key(PyObject* value) noexcept {
  if (PyTuple_CheckExact(value) == 0) return is_leaf(value);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(value); ++i)
    if (!is_key(PyTuple_GET_ITEM(value, i))) return false;
  return true;
}

[[noreturn]] void refuse_type(const Path& path, const std::string& what) {
  refuse(path,
         what + " cannot be shared; use share_object or cached(codec='object') for any object that can be pickled");
}

bool is_answer(nb::handle answer) noexcept {
  return PyTuple_CheckExact(answer.ptr()) != 0 && PyTuple_GET_SIZE(answer.ptr()) == 2 &&
         PyUnicode_CheckExact(PyTuple_GET_ITEM(answer.ptr(), 0)) != 0;
}

}  // namespace

void Checker::check_row(PyObject* row, Py_ssize_t number, bool of_dict) {
  stand_ins_.clear();
  if (of_dict && PyTuple_CheckExact(row) != 0 && PyTuple_GET_SIZE(row) == 2) return check_pair(row, number);
  Path path;
  path.number = number;
  check(row, path);
}

void Checker::check_pair(PyObject* pair, Py_ssize_t number) {
  PyObject* key = PyTuple_GET_ITEM(pair, 0);
  Path path{.container = pair, .step = Path::Step::key_itself, .depth = 1, .number = number, .key = key};
  check(key, path);  // is_key needs one that is not too deep
  if (!is_key(key))
    refuse(path, "a dict key must not be of type " + type_name(key) +
                     ": keys are str, bytes, int, float, bool, None, and tuples of these");
  path.step = Path::Step::key;
  check(PyTuple_GET_ITEM(pair, 1), path);
}

// A reference to the inspected object is held: the registry may run any code.
void Checker::check(PyObject* value, const Path& path) {
  if (is_leaf(value)) return;
  const nb::object held = nb::borrow(value);
  if (PyList_CheckExact(value) != 0) return check_list(value, path);
  if (PyDict_CheckExact(value) != 0) return check_dict(value, path);
  if (PyTuple_CheckExact(value) != 0) return check_tuple(value, path);
  check_other(value, path);
}

void Checker::check_list(PyObject* list, const Path& path) {
  Path here = path.inside(list, Path::Step::index);
  for (; here.number < PyList_GET_SIZE(list); ++here.number) check(PyList_GET_ITEM(list, here.number), here);
}

void Checker::check_tuple(PyObject* tuple, const Path& path) {
  Path here = path.inside(tuple, Path::Step::index);
  for (; here.number < PyTuple_GET_SIZE(tuple); ++here.number) check(PyTuple_GET_ITEM(tuple, here.number), here);
}

void Checker::check_dict(PyObject* dict, const Path& path) {
  Path here = path.inside(dict, Path::Step::key);
  const Py_ssize_t size = PyDict_GET_SIZE(dict);
  Py_ssize_t at = 0;
  PyObject* value = nullptr;
  KeyHashes hashes;
  for (; PyDict_Next(dict, &at, &here.key, &value) != 0; ++here.number) {
    if (std::cmp_greater(size, KeyHashes::most) && !hashes.count(here.key))
      refuse_type(path, concat("a dict with more than ", KeyHashes::most, " keys with the same hash"));
    if (is_leaf(here.key) && is_leaf(value)) continue;
    const nb::object held_key = nb::borrow(here.key);
    const nb::object held_value = nb::borrow(value);
    here.step = Path::Step::key_itself;
    check(here.key, here);
    here.step = Path::Step::key;
    check(value, here);
    if (PyDict_GET_SIZE(dict) != size) refuse(path, "a dict that was changed while it was being read");
  }
}

void Checker::check_other(PyObject* value, const Path& path) {
  numpy_.find();
  const auto kind = numpy_.kind_of(value);
  if (kind == NumpyTypes::Kind::scalar) return;
  if (kind == NumpyTypes::Kind::array) {
    const auto& dtype = numpy_.dtype_of(value);
    if (dtype.plain) return;
    refuse_type(path, "an array of dtype " + nb::cast<std::string>(nb::str(dtype.object)));
  }
  const nb::object answer = ask_registry(value, path);
  if (answer.is_none()) refuse_type(path, "an object of type " + type_name(value));
  if (!is_answer(answer)) throw nb::type_error("the registry must return (name, plain value) or None");
  const nb::object plain = nb::borrow(PyTuple_GET_ITEM(answer.ptr(), 1));
  stand_ins_.push_back({nb::borrow(value), nb::borrow(PyTuple_GET_ITEM(answer.ptr(), 0)), plain});
  check(plain.ptr(), path.inside(value, Path::Step::stand_in));
}

nb::object Checker::ask_registry(PyObject* value, const Path& path) const {
  try {
    return registry_(nb::handle(value));
  } catch (nb::python_error& error) {
    if (error.matches(nb::module_::import_("onecopy.errors").attr("NotShareable")))
      refuse(path, nb::cast<std::string>(nb::str(error.value())));
    error.value().attr("add_note")(text_of("in the value at " + path.text()));
    throw;
  }
}

}  // namespace onecopy::bindings
