#include "records/numpy_types.hpp"

#include <nanobind/stl/string.h>

#include <string_view>

namespace onecopy::bindings {
namespace {

PyTypeObject* type_from(const nb::object& object) {
  return reinterpret_cast<PyTypeObject*>(object.ptr());  // NOLINT: CPython's own inheritance
}

constexpr std::uint32_t largest_item = 65536;  // bytes: the limit of a reader

}  // namespace

void NumpyTypes::find() {
  if (ndarray_.is_valid()) return;
  const nb::str name("numpy");
  const nb::object numpy = nb::steal(PyImport_GetModule(name.ptr()));
  if (!numpy.is_valid() || !nb::hasattr(numpy, "generic")) return;  // not imported, or only partially
  generic_ = numpy.attr("generic");
  dtype_ = numpy.attr("dtype");
  ndarray_ = numpy.attr("ndarray");
}

NumpyTypes::Kind NumpyTypes::kind_of(PyObject* value) {
  if (!ndarray_.is_valid()) return Kind::none;
  if (Py_IS_TYPE(value, type_from(ndarray_)) != 0) return Kind::array;
  if (PyType_IsSubtype(Py_TYPE(value), type_from(generic_)) == 0) return Kind::none;
  const DType& dtype = dtype_of(value);
  // np.str_ and np.bytes_ have a dtype for each length; they, as a subclass, are of no type that comes back.
  const bool is_text = dtype.name.find_first_of("SU") != std::string::npos;
  return dtype.plain && !is_text && Py_IS_TYPE(value, type_from(dtype.scalar_type)) != 0 ? Kind::scalar : Kind::none;
}

const NumpyTypes::DType& NumpyTypes::dtype_of(PyObject* value) {
  nb::object dtype = nb::handle(value).attr("dtype");
  if (last_.object.is(dtype)) return last_;
  last_ = {};
  last_.name = nb::cast<std::string>(dtype.attr("str"));
  const auto item_size = nb::cast<std::uint64_t>(dtype.attr("itemsize"));
  const std::string_view kinds = "biufcSUMm";
  last_.plain = item_size > 0 && item_size <= largest_item &&
                kinds.find(nb::cast<std::string>(dtype.attr("kind"))) != std::string_view::npos;
  last_.item_size = static_cast<std::uint32_t>(item_size);
  if (last_.plain) last_.scalar_type = dtype_(last_.name).attr("type");
  last_.object = std::move(dtype);
  return last_;
}

}  // namespace onecopy::bindings
