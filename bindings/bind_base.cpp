// C++ exceptions become Python's own: OsError the built-in class of its errno, the others those of onecopy/base.py.

#include "bindings.hpp"
#include "onecopy/base/error.hpp"

namespace onecopy::bindings {
namespace {

nb::object error_class(const char* name) { return nb::module_::import_("onecopy.base").attr(name); }

// Paths and names need not be UTF-8: as Python's own errors have them.
nb::object text_of(const std::string& text) {
  return nb::steal(PyUnicode_DecodeFSDefaultAndSize(text.data(), static_cast<Py_ssize_t>(text.size())));
}

// OSError(errno, text, filename): Python picks FileNotFoundError, PermissionError, ... by the number.
void raise_os_error(const nb::object& type, const OsError& error) {
  const nb::object value =
      type(error.code(), text_of(error.operation() + ": " + error.reason()), text_of(error.path()));
  PyErr_SetObject(value.type().ptr(), value.ptr());
}

void translate(const std::exception_ptr& pointer, void* /*unused*/) {
  try {
    std::rethrow_exception(pointer);
  } catch (const DataLost& error) {
    raise_os_error(error_class("DataLost"), error);
  } catch (const FileChanged& error) {
    raise_os_error(error_class("FileChanged"), error);
  } catch (const OsError& error) {
    raise_os_error(nb::borrow(PyExc_OSError), error);
  } catch (const FormatError& error) {
    PyErr_SetObject(error_class("FormatError").ptr(), text_of(error.what()).ptr());
  }
}

}  // namespace

void bind_base(nb::module_& /*module*/) { nb::register_exception_translator(translate, nullptr); }

}  // namespace onecopy::bindings
