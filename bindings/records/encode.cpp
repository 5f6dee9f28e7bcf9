#include "records/encode.hpp"

#include <optional>
#include <span>

namespace onecopy::bindings {
namespace {

using records::Column;

constexpr Py_ssize_t most_fixed = 8;  // values of a tuple whose positions have types of their own

Bytes bytes_of(nb::handle bytes) {
  return std::as_bytes(
      std::span(PyBytes_AS_STRING(bytes.ptr()), static_cast<std::size_t>(PyBytes_GET_SIZE(bytes.ptr()))));
}

// Only for text without lone surrogates. Refers to the UTF-8 that the str caches: right for keys, which recur.
std::optional<std::string_view> utf8_of_key(PyObject* key) {
  if (PyUnicode_CheckExact(key) == 0) return std::nullopt;
  Py_ssize_t size = 0;
  const char* text = PyUnicode_AsUTF8AndSize(key, &size);
  if (text != nullptr) return std::string_view(text, static_cast<std::size_t>(size));
  PyErr_Clear();
  return std::nullopt;
}

// Can only happen by code that a registry or a finalizer runs.
[[noreturn]] void raise_changed() {
  PyErr_SetString(PyExc_RuntimeError, "a row was changed while it was being read");
  throw nb::python_error();
}

// The bytes of an array in C order: its own memory if it is contiguous.
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

// One level of depth, as long as this object lives.
class Level {
 public:
  explicit Level(int& depth) : depth_(depth) {
    if (++depth_ > Path::deepest) raise_changed();  // it was not as deep when it was checked
  }
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;
  ~Level() { --depth_; }

 private:
  int& depth_;
};

}  // namespace

void Encoder::add(Column& column, PyObject* row) {
  next_stand_in_ = 0;
  depth_ = 0;
  encode(column, row);
}

void Encoder::encode(Column& column, PyObject* value) {
  const PyTypeObject* type = Py_TYPE(value);
  if (type == &PyFloat_Type) return column.real(PyFloat_AS_DOUBLE(value));
  if (type == &PyLong_Type) return integer(column, value);
  if (type == &PyUnicode_Type) return text(column, value);
  if (value == Py_None) return column.null();
  if (type == &PyBool_Type) return column.boolean(value == Py_True);
  if (type == &PyBytes_Type) return column.bytes(bytes_of(value));
  const nb::object held = nb::borrow(value);
  const Level level(depth_);
  if (type == &PyList_Type) return list(column, value);
  if (type == &PyDict_Type) return dict(column, value);
  if (type == &PyTuple_Type) return tuple(column, value);
  other(column, value);
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

void Encoder::list(Column& column, PyObject* value) {
  auto& list = column.list();
  Column& items = list.items();
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(value); ++i) encode(items, PyList_GET_ITEM(value, i));
  list.end();
}

void Encoder::tuple(Column& column, PyObject* value) {
  const Py_ssize_t size = PyTuple_GET_SIZE(value);
  if (size <= most_fixed) {
    auto& fixed = column.fixed(static_cast<std::size_t>(size));
    for (Py_ssize_t i = 0; i < size; ++i) encode(fixed.at(static_cast<std::size_t>(i)), PyTuple_GET_ITEM(value, i));
    return fixed.end();
  }
  auto& tuple = column.tuple();
  Column& items = tuple.items();
  for (Py_ssize_t i = 0; i < size; ++i) encode(items, PyTuple_GET_ITEM(value, i));
  tuple.end();
}

void Encoder::dict(Column& column, PyObject* value) {
  if (is_text_keyed(value) && column.fits_record(keys_)) return record(column, value);
  map(column, value);
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

void Encoder::record(Column& column, PyObject* value) {
  auto& record = column.record();
  const Py_ssize_t size = PyDict_GET_SIZE(value);
  Py_ssize_t at = 0;
  PyObject* key = nullptr;
  PyObject* item = nullptr;
  while (PyDict_Next(value, &at, &key, &item) != 0) {
    const auto text = utf8_of_key(key);
    if (!text) raise_changed();
    encode(record.field(*text), item);
    if (PyDict_GET_SIZE(value) != size) raise_changed();
  }
  record.end();
}

void Encoder::map(Column& column, PyObject* value) {
  auto& map = column.map();
  const Py_ssize_t size = PyDict_GET_SIZE(value);
  Py_ssize_t at = 0;
  PyObject* key = nullptr;
  PyObject* item = nullptr;
  while (PyDict_Next(value, &at, &key, &item) != 0) {
    const nb::object held = nb::borrow(item);
    encode(map.keys(), key);
    encode(map.values(), item);
    if (PyDict_GET_SIZE(value) != size) raise_changed();
  }
  map.end();
}

void Encoder::other(Column& column, PyObject* value) {
  const auto& stand_ins = checker_.stand_ins();
  if (next_stand_in_ < stand_ins.size() && stand_ins[next_stand_in_].object.is(value)) {
    const StandIn& found = stand_ins[next_stand_in_++];
    const auto name = utf8_of_key(found.name.ptr());
    if (!name) throw nb::value_error("the name of a type is not UTF-8");
    return encode(column.extension(*name), found.plain.ptr());
  }
  const auto kind = numpy_.kind_of(value);
  if (kind == NumpyTypes::Kind::none) raise_changed();
  array(column, value, kind == NumpyTypes::Kind::scalar);
}

void Encoder::array(Column& column, PyObject* value, bool scalar) {
  const auto& dtype = numpy_.dtype_of(value);
  shape_.clear();
  for (const nb::handle extent : nb::borrow<nb::tuple>(nb::handle(value).attr("shape")))
    shape_.push_back(nb::cast<std::uint64_t>(extent));
  const ArrayBytes bytes(value);
  column.array(
      {.dtype = dtype.name, .item_size = dtype.item_size, .shape = shape_, .bytes = bytes.get(), .scalar = scalar});
}

}  // namespace onecopy::bindings
