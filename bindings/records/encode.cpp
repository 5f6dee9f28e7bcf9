#include "records/encode.hpp"

#include <span>

namespace onecopy::bindings {
namespace {

using records::Column;

constexpr Py_ssize_t most_fixed = 8;  // values of a tuple whose places have types of their own

nb::object owned(PyObject* object) {
  if (object == nullptr) throw nb::python_error();
  return nb::steal(object);
}

Bytes bytes_of(nb::handle bytes) {
  return std::as_bytes(
      std::span(PyBytes_AS_STRING(bytes.ptr()), static_cast<std::size_t>(PyBytes_GET_SIZE(bytes.ptr()))));
}

// Only of text without lone surrogates. Looks into the str, which keeps what is not ASCII: right for keys, which recur.
std::optional<std::string_view> utf8_of_key(PyObject* key) {
  if (PyUnicode_CheckExact(key) == 0) return std::nullopt;
  Py_ssize_t size = 0;
  const char* text = PyUnicode_AsUTF8AndSize(key, &size);
  if (text != nullptr) return std::string_view(text, static_cast<std::size_t>(size));
  PyErr_Clear();
  return std::nullopt;
}

std::string type_name(PyObject* value) {
  const nb::handle type(reinterpret_cast<PyObject*>(Py_TYPE(value)));  // NOLINT: CPython's own inheritance
  const std::string name = nb::cast<std::string>(nb::str(type.attr("__qualname__")));
  const std::string module = nb::cast<std::string>(nb::str(type.attr("__module__")));
  return module == "builtins" ? name : module + "." + name;
}

[[noreturn]] void refuse(const Path& path, const std::string& what) {
  const nb::object error = nb::module_::import_("onecopy.records").attr("NotShareable");
  PyErr_SetObject(error.ptr(), text_of(path.text() + ": " + what).ptr());
  throw nb::python_error();
}

// One level further in.
Path inside(const Path& path, PyObject* container, Path::Step step) {
  if (path.depth == Path::deepest)
    refuse(path, path.contains(container) ? "a value that contains itself" : "nested deeper than 60 levels");
  return {.above = &path, .container = container, .step = step, .depth = path.depth + 1, .number = 0, .key = nullptr};
}

[[noreturn]] void refuse_changed(const Path& path) {
  PyErr_SetObject(PyExc_RuntimeError, text_of(path.text() + ": the dict was changed while it was read").ptr());
  throw nb::python_error();
}

// The bytes of an array in C order: its own where they lie so.
class ArrayBytes {
 public:
  explicit ArrayBytes(nb::handle array) {
    if (PyObject_GetBuffer(array.ptr(), &buffer_, PyBUF_C_CONTIGUOUS) == 0) {
      bytes_ = {static_cast<const std::byte*>(buffer_.buf), static_cast<std::size_t>(buffer_.len)};
      return;
    }
    PyErr_Clear();  // strides, or a type that buffers do not know (datetime64)
    buffer_ = {};
    copy_ = array.attr("tobytes")();
    bytes_ = bytes_of(copy_);
  }
  ArrayBytes(const ArrayBytes&) = delete;
  ArrayBytes& operator=(const ArrayBytes&) = delete;
  ~ArrayBytes() { PyBuffer_Release(&buffer_); }

  Bytes get() const noexcept { return bytes_; }

 private:
  Py_buffer buffer_{};
  nb::object copy_;
  Bytes bytes_;
};

}  // namespace

void Encoder::encode(Column& column, PyObject* value, const Path& path) {
  const PyTypeObject* type = Py_TYPE(value);
  if (type == &PyFloat_Type) return column.real(PyFloat_AS_DOUBLE(value));
  if (type == &PyLong_Type) return integer(column, value);
  if (type == &PyUnicode_Type) return text(column, value);
  if (type == &PyList_Type) return list(column, value, path);
  if (type == &PyDict_Type) return dict(column, value, path);
  if (type == &PyTuple_Type) return tuple(column, value, path);
  if (value == Py_None) return column.null();
  if (type == &PyBool_Type) return column.boolean(value == Py_True);
  if (type == &PyBytes_Type) return column.bytes(bytes_of(value));
  if (!numpy_value(column, value, path)) extension(column, value, path);
}

void Encoder::integer(Column& column, PyObject* value) {
  int overflow = 0;
  const long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
  if (overflow == 0) return column.integer(number);
  const nb::handle integer(value);
  const auto bits = nb::cast<std::uint64_t>(integer.attr("bit_length")());
  column.bigint(bytes_of(integer.attr("to_bytes")(bits / 8 + 1, "little", nb::arg("signed") = true)));
}

void Encoder::text(Column& column, PyObject* value) {
  if (PyUnicode_IS_COMPACT_ASCII(value))
    return column.text(
        {static_cast<const char*>(PyUnicode_DATA(value)), static_cast<std::size_t>(PyUnicode_GET_LENGTH(value))});
  // Not PyUnicode_AsUTF8: every str would keep its UTF-8, and the caller's data grow by half.
  nb::object utf8 = nb::steal(PyUnicode_AsUTF8String(value));
  if (utf8.is_valid()) {
    const auto bytes = bytes_of(utf8);
    return column.text({reinterpret_cast<const char*>(bytes.data()), bytes.size()});  // NOLINT: bytes seen as text
  }
  PyErr_Clear();  // a lone surrogate
  utf8 = owned(PyUnicode_AsEncodedString(value, "utf-8", "surrogatepass"));
  column.extension("str").bytes(bytes_of(utf8));
}

// What is looked into is held: the registry may be called on the way, and do anything.
void Encoder::list(Column& column, PyObject* value, const Path& path) {
  Path here = inside(path, value, Path::Step::index);
  auto& list = column.list();
  Column& items = list.items();
  for (; here.number < PyList_GET_SIZE(value); ++here.number) {
    const nb::object item = nb::borrow(PyList_GET_ITEM(value, here.number));
    encode(items, item.ptr(), here);
  }
  list.end();
}

void Encoder::tuple(Column& column, PyObject* value, const Path& path) {
  Path here = inside(path, value, Path::Step::index);
  const Py_ssize_t size = PyTuple_GET_SIZE(value);
  if (size <= most_fixed) {
    auto& fixed = column.fixed(static_cast<std::size_t>(size));
    for (; here.number < size; ++here.number)
      encode(fixed.at(static_cast<std::size_t>(here.number)), PyTuple_GET_ITEM(value, here.number), here);
    return fixed.end();
  }
  auto& tuple = column.tuple();
  for (; here.number < size; ++here.number) encode(tuple.items(), PyTuple_GET_ITEM(value, here.number), here);
  tuple.end();
}

void Encoder::dict(Column& column, PyObject* value, const Path& path) {
  const Path here = inside(path, value, Path::Step::key);
  if (is_text_keyed(value) && column.fits_record(keys_)) return record(column, value, here);
  map(column, value, here);
}

bool Encoder::is_text_keyed(PyObject* dict) {
  keys_.clear();
  Py_ssize_t at = 0;
  PyObject* key = nullptr;
  while (PyDict_Next(dict, &at, &key, nullptr) != 0) {
    const auto text = utf8_of_key(key);
    if (!text) return false;
    keys_.push_back(*text);
  }
  return true;
}

void Encoder::record(Column& column, PyObject* value, Path here) {
  auto& record = column.record();
  const Py_ssize_t size = PyDict_GET_SIZE(value);
  Py_ssize_t at = 0;
  PyObject* item = nullptr;
  while (PyDict_Next(value, &at, &here.key, &item) != 0) {
    const nb::object held_key = nb::borrow(here.key);
    const nb::object held_item = nb::borrow(item);
    const auto key = utf8_of_key(here.key);
    if (!key) refuse_changed(*here.above);
    encode(record.field(*key), item, here);
    if (PyDict_GET_SIZE(value) != size) refuse_changed(*here.above);
  }
  record.end();
}

void Encoder::map(Column& column, PyObject* value, Path here) {
  auto& map = column.map();
  const Py_ssize_t size = PyDict_GET_SIZE(value);
  Py_ssize_t at = 0;
  PyObject* item = nullptr;
  for (; PyDict_Next(value, &at, &here.key, &item) != 0; ++here.number) {
    const nb::object held_key = nb::borrow(here.key);
    const nb::object held_item = nb::borrow(item);
    here.step = Path::Step::key_itself;
    encode(map.keys(), held_key.ptr(), here);
    here.step = Path::Step::key;
    encode(map.values(), item, here);
    if (PyDict_GET_SIZE(value) != size) refuse_changed(*here.above);
  }
  map.end();
}

// --- numpy -----------------------------------------------------------------------------------------------------

bool Encoder::knows_numpy() {
  if (ndarray_.is_valid()) return true;
  const nb::object name = owned(PyUnicode_InternFromString("numpy"));
  const nb::object numpy = nb::steal(PyImport_GetModule(name.ptr()));
  if (!numpy.is_valid()) return false;  // then nothing is of a type of numpy
  ndarray_ = numpy.attr("ndarray");
  generic_ = numpy.attr("generic");
  return true;
}

bool Encoder::numpy_value(Column& column, PyObject* value, const Path& path) {
  if (!knows_numpy()) return false;
  const bool is_array = Py_IS_TYPE(value, reinterpret_cast<PyTypeObject*>(ndarray_.ptr())) != 0;  // NOLINT
  if (!is_array && PyObject_IsInstance(value, generic_.ptr()) != 1) return false;
  const DType& dtype = dtype_of(value);
  const std::string_view plain = is_array ? "biufcSUMm" : "biufcMm";
  if (plain.find(dtype.kind) == std::string_view::npos) {  // objects, structures, and types of other packages
    if (!is_array) return false;
    refuse(path, "an array of the dtype " + nb::cast<std::string>(nb::str(dtype.object)) + " cannot be shared");
  }
  if (dtype.item_size == 0 || dtype.item_size > 65536)
    refuse(path, "an array whose items have " + std::to_string(dtype.item_size) + " bytes cannot be shared");
  array(column, value, !is_array);
  return true;
}

const Encoder::DType& Encoder::dtype_of(nb::handle value) {
  nb::object dtype = value.attr("dtype");
  if (dtype_.object.is(dtype)) return dtype_;
  dtype_.name = nb::cast<std::string>(dtype.attr("str"));
  dtype_.item_size = nb::cast<std::uint32_t>(dtype.attr("itemsize"));
  dtype_.kind = nb::cast<std::string>(dtype.attr("kind")).at(0);
  dtype_.object = std::move(dtype);
  return dtype_;
}

void Encoder::array(Column& column, nb::handle value, bool scalar) {
  shape_.clear();
  for (const nb::handle extent : nb::borrow<nb::tuple>(value.attr("shape")))
    shape_.push_back(nb::cast<std::uint64_t>(extent));
  const ArrayBytes bytes(value);
  column.array(
      {.dtype = dtype_.name, .item_size = dtype_.item_size, .shape = shape_, .bytes = bytes.get(), .scalar = scalar});
}

// --- everything else -------------------------------------------------------------------------------------------

void Encoder::extension(Column& column, PyObject* value, const Path& path) {
  nb::object answer;
  try {
    answer = registry_(nb::handle(value));
  } catch (nb::python_error& error) {
    error.value().attr("add_note")(text_of("in the value at " + path.text()));
    throw;
  }
  if (answer.is_none()) refuse(path, "an object of type " + type_name(value) + " cannot be shared");
  const bool is_pair = PyTuple_Check(answer.ptr()) != 0 && PyTuple_GET_SIZE(answer.ptr()) == 2;
  const auto name = is_pair ? utf8_of_key(PyTuple_GET_ITEM(answer.ptr(), 0)) : std::nullopt;
  if (!name) throw nb::type_error("the registry must return (name, plain value) or None");
  const Path here = inside(path, value, Path::Step::stand_in);
  encode(column.extension(*name), PyTuple_GET_ITEM(answer.ptr(), 1), here);
}

}  // namespace onecopy::bindings
