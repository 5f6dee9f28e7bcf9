// C++ exceptions become Python's own: OsError the built-in class of its errno, the others those of onecopy/base.py.

#include "bindings.hpp"
#include "onecopy/base/error.hpp"

namespace onecopy::bindings {

nb::object error_class(const char* name) { return nb::module_::import_("onecopy.base").attr(name); }

// Paths and names need not be UTF-8: as Python's own errors have them.
nb::object text_of(std::string_view text) {
  return nb::steal(PyUnicode_DecodeFSDefaultAndSize(text.data(), static_cast<Py_ssize_t>(text.size())));
}

namespace {

// OSError(errno, text, filename): Python picks FileNotFoundError, PermissionError, ... by the number.
nb::object os_error(const nb::object& type, const OsError& error) {
  return type(error.code(), text_of(error.operation() + ": " + error.reason()), text_of(error.path()));
}

void raise(const nb::object& value) { PyErr_SetObject(value.type().ptr(), value.ptr()); }

void translate(const std::exception_ptr& pointer, void* /*unused*/) {
  try {
    std::rethrow_exception(pointer);
  } catch (const DataLost& error) {
    const nb::object value = os_error(error_class("DataLost"), error);
    if (error.offset()) value.attr("offset") = *error.offset();
    raise(value);
  } catch (const FileChanged& error) {
    raise(os_error(error_class("FileChanged"), error));
  } catch (const OsError& error) {
    raise(os_error(nb::borrow(PyExc_OSError), error));
  } catch (const NoChecksum& error) {
    PyErr_SetObject(error_class("NoChecksum").ptr(), text_of(error.what()).ptr());
  } catch (const FormatError& error) {
    PyErr_SetObject(error_class("FormatError").ptr(), text_of(error.what()).ptr());
  }
}

}  // namespace

void set_error() noexcept {
  try {
    try {
      throw;
    } catch (nb::python_error& error) {
      error.restore();
    } catch (const nb::builtin_exception& error) {
      PyErr_SetString(error.type() == nb::exception_type::index_error   ? PyExc_IndexError
                      : error.type() == nb::exception_type::key_error   ? PyExc_KeyError
                      : error.type() == nb::exception_type::value_error ? PyExc_ValueError
                                                                        : PyExc_TypeError,
                      error.what());
    } catch (const std::bad_alloc&) {
      PyErr_NoMemory();
    } catch (...) {
      translate(std::current_exception(), nullptr);
    }
  } catch (nb::python_error& error) {  // of the translation itself
    error.restore();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
}

void bind_base(nb::module_& /*module*/) { nb::register_exception_translator(translate, nullptr); }

}  // namespace onecopy::bindings
