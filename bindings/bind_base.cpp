// C++ exceptions become Python's: OsError the built-in class for its errno, all others classes of onecopy.errors.

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <unistd.h>

#include "bindings.hpp"
#include "buffer.hpp"
#include "onecopy/base/crc32c.hpp"
#include "onecopy/base/error.hpp"
#include "onecopy/base/interrupt.hpp"
#include "onecopy/base/permutation.hpp"
#include "onecopy/base/version.hpp"

namespace onecopy::bindings {

void wait_for_the_end() noexcept {
  for (;;) ::pause();
}

void poll_signals() {
  if (::gettid() != ::getpid()) return;
  const AcquireGil acquire;
  check_signals();
}

nb::object error_class(const char* name) {
  return in_python([name] { return nb::object(nb::module_::import_("onecopy.errors").attr(name)); });
}

// Paths and names need not be UTF-8: decoded as in Python's own errors.
nb::object text_of(std::string_view text) {
  return nb::steal(PyUnicode_DecodeFSDefaultAndSize(text.data(), static_cast<Py_ssize_t>(text.size())));
}

void throw_closed(const std::string& text) {
  const AcquireGil acquire;
  PyErr_SetObject(PyExc_ValueError, text_of(text).ptr());
  throw nb::python_error();
}

nb::object format_error(const char* name, const FormatError& error) {
  const nb::object type = error_class(name);
  nb::object value = type(text_of(error.what()));
  value.attr("kind") = type.attr("Kind")(to_string(error.kind()));
  if (!error.path().empty()) value.attr("path") = text_of(error.path());
  if (error.offset()) value.attr("offset") = *error.offset();
  if (!error.found().empty()) value.attr("found") = error.found();
  return value;
}

namespace {

// OSError(errno, text, filename): Python picks FileNotFoundError, PermissionError, ... by the number.
nb::object os_error(const nb::object& type, const OsError& error) {
  const nb::object text = text_of(error.operation() + ": " + error.reason());
  return error.path().empty() ? type(error.code(), text) : type(error.code(), text, text_of(error.path()));
}

void raise(const nb::object& value) { PyErr_SetObject(value.type().ptr(), value.ptr()); }

void translate(const std::exception_ptr& pointer, void* /*unused*/) {
  try {
    rethrow(pointer);
  } catch (const DataLost& error) {
    const nb::object value = os_error(error_class("DataLost"), error);
    if (error.offset()) value.attr("offset") = *error.offset();
    raise(value);
  } catch (const FileChanged& error) {
    raise(os_error(error_class("FileChanged"), error));
  } catch (const OsError& error) {
    raise(os_error(error.code() == ENOMEM ? error_class("NotEnoughMemory") : nb::borrow(PyExc_OSError), error));
  } catch (const NoChecksum& error) {
    raise(format_error("NoChecksum", error));
  } catch (const FormatError& error) {
    raise(format_error("FormatError", error));
  }
}

using Indices = nb::ndarray<std::int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

std::uint64_t at(const Permutation& permutation, std::uint64_t position) {
  if (position >= permutation.size()) throw nb::index_error("a position is outside the permutation");
  return permutation[position];
}

std::uint64_t index_of(const Permutation& permutation, std::uint64_t value) {
  if (value >= permutation.size()) throw nb::value_error("a value is outside the permutation");
  return permutation.index_of(value);
}

void fill(const Permutation& permutation, std::uint64_t first, std::int64_t step, const Indices& values) {
  const ReleaseGil release;
  // int64 and uint64 may alias; no value of a Python sequence reaches 2^63.
  permutation.fill(first, step, {reinterpret_cast<std::uint64_t*>(values.data()), values.size()});
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

void bind_base(nb::module_& module) {
  set_poll(poll_signals);
  nb::register_exception_translator(translate, nullptr);
  module.def("version", &version, "Return the version of the compiled module.");
  module.def(
      "crc32c",
      [](const nb::object& data) {
        const Buffer buffer(data);
        constexpr std::size_t fast = 64 << 10;  // takes less time than another thread needs to take the GIL
        if (buffer.bytes().size() <= fast) {
          return crc32c(0, buffer.bytes());
        }
        const ReleaseGil release;
        return crc32c(0, buffer.bytes());
      },
      nb::arg("data"), "Return the CRC-32C of a buffer's bytes.");
  nb::class_<Permutation>(module, "Permutation", "A pseudo-random permutation that is computed on demand.")
      .def(nb::init<std::uint64_t, std::uint64_t, std::uint64_t>(), nb::arg("size"), nb::arg("seed"), nb::arg("epoch"))
      .def("at", &at, nb::arg("position"))
      .def("index_of", &index_of, nb::arg("value"))
      .def("fill", &fill, nb::arg("first"), nb::arg("step"), nb::arg("values"),
           nb::sig("def fill(self, first: int, step: int, values: object) -> None"),
           "Write the values at positions first, first + step, ... into a buffer of 64-bit integers.");
}

}  // namespace onecopy::bindings
