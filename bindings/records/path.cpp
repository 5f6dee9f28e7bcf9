#include "records/path.hpp"

namespace onecopy::bindings {
namespace {

std::string text_from(nb::handle object) {
  const nb::object bytes = nb::steal(PyUnicode_AsEncodedString(object.ptr(), "utf-8", "backslashreplace"));
  if (!bytes.is_valid()) throw nb::python_error();
  return {PyBytes_AS_STRING(bytes.ptr()), static_cast<std::size_t>(PyBytes_GET_SIZE(bytes.ptr()))};
}

// .name, ["other text"], [b"bytes"]
std::string key_step(PyObject* key) {
  if (PyUnicode_CheckExact(key) == 0) return "[" + text_from(nb::repr(nb::handle(key))) + "]";
  if (PyUnicode_IsIdentifier(key) == 1) return "." + text_from(key);
  const nb::object escaped = nb::handle(key).attr("replace")("\\", "\\\\").attr("replace")("\"", "\\\"");
  return "[\"" + text_from(escaped) + "\"]";
}

}  // namespace

Path Path::inside(PyObject* value, Step next) const {
  if (depth == deepest)
    refuse(*this, contains(value) ? "a value that contains itself"
                                  : "nested more than " + std::to_string(deepest) + " levels deep");
  return {.above = this, .container = value, .step = next, .depth = depth + 1, .number = 0, .key = nullptr};
}

std::string Path::text() const {
  std::string before = above == nullptr ? "" : above->text();
  switch (step) {
    case Step::index: return before + "[" + std::to_string(number) + "]";
    case Step::key: return above == nullptr ? "[" + text_from(nb::repr(nb::handle(key))) + "]" : before + key_step(key);
    case Step::key_itself: return before + ".keys()[" + std::to_string(number) + "]";
    case Step::stand_in: break;
  }
  return before;
}

bool Path::contains(PyObject* object) const noexcept {
  for (const Path* at = this; at != nullptr; at = at->above)
    if (at->container == object) return true;
  return false;
}

void refuse(const Path& path, const std::string& what) {
  const nb::object error = nb::module_::import_("onecopy.errors").attr("NotShareable");
  PyErr_SetObject(error.ptr(), text_of(path.text() + ": " + what).ptr());
  throw nb::python_error();
}

}  // namespace onecopy::bindings
