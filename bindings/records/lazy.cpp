// A Python type of its own and not one of nanobind's: an object of three words, made and thrown away with every touch.

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "records/rows.hpp"

namespace onecopy::bindings {
namespace {

using records::Node;
using records::TypeKind;

struct Lazy {
  PyObject_HEAD std::shared_ptr<const RecordSource> source;
  const Decoder* decoder;
  std::uint64_t place;
};

PyTypeObject* lazy_type = nullptr;  // made once, when the module is loaded

Lazy* lazy_of(PyObject* self) noexcept { return reinterpret_cast<Lazy*>(self); }  // NOLINT: CPython's own inheritance

// Runs the body of a slot, and converts C++ exceptions to Python's.
template <class Body>
auto guarded(const Body& body, decltype(body()) failed) noexcept -> decltype(body()) {
  try {
    return body();
  } catch (...) {
    set_error();
    return failed;
  }
}

// Of a record: the number of a field that this row has, or -1.
std::ptrdiff_t field_of(const Lazy& lazy, nb::handle name) {
  if (lazy.decoder->node().kind != TypeKind::record || PyUnicode_Check(name.ptr()) == 0) return -1;
  const std::ptrdiff_t field = lazy.decoder->find(name);
  if (field < 0) return -1;
  if (lazy.decoder->node().type->shapes.size() > 1) {
    const auto& fields = lazy.decoder->node().fields(lazy.place);
    if (std::ranges::find(fields, static_cast<std::uint32_t>(field)) == fields.end()) return -1;
  }
  return field;
}

nb::object child_value(const Lazy& lazy, std::size_t child) {
  return lazy_value(lazy.source, lazy.decoder->child(child), lazy.place);
}

std::uint64_t size_of(const Lazy& lazy) {
  const Node& node = lazy.decoder->node();
  switch (node.kind) {
    case TypeKind::record: return node.fields(lazy.place).size();
    case TypeKind::fixed: return node.children.size();
    default: return node.range(lazy.place).size();
  }
}

// Item i of a list or a tuple.
nb::object item(const Lazy& lazy, Py_ssize_t i) {
  const auto size = static_cast<Py_ssize_t>(size_of(lazy));
  if (i < 0) i += size;
  if (i < 0 || i >= size) throw nb::index_error("index out of range");
  if (lazy.decoder->node().kind == TypeKind::fixed) return child_value(lazy, static_cast<std::size_t>(i));
  const auto range = lazy.decoder->node().range(lazy.place);
  return lazy_value(lazy.source, lazy.decoder->child(0), range.begin + static_cast<std::uint64_t>(i));
}

nb::object copy_of(const Lazy& lazy) {
  nb::object value = lazy.decoder->decode(lazy.place);
  expect_whole(*lazy.source->file.arrays().mapping());
  return value;
}

nb::list keys_of(const Lazy& lazy) {
  nb::list keys;
  if (lazy.decoder->node().kind != TypeKind::record)
    throw nb::type_error("a place in the data that is no dict has no keys");
  for (const std::uint32_t field : lazy.decoder->node().fields(lazy.place)) keys.append(lazy.decoder->name(field));
  return keys;
}

PyObject* subscript(PyObject* self, PyObject* key) noexcept {
  return guarded(
      [&]() -> PyObject* {
        const Lazy& lazy = *lazy_of(self);
        const TypeKind kind = lazy.decoder->node().kind;
        if (kind == TypeKind::record) {
          const std::ptrdiff_t field = field_of(lazy, key);
          if (field >= 0) return child_value(lazy, static_cast<std::size_t>(field)).release().ptr();
          PyErr_SetObject(PyExc_KeyError, key);
          return nullptr;
        }
        if (kind == TypeKind::map || PyIndex_Check(key) == 0) return PyObject_GetItem(copy_of(lazy).ptr(), key);
        const Py_ssize_t i = PyNumber_AsSsize_t(key, PyExc_IndexError);
        if (i == -1 && PyErr_Occurred() != nullptr) return nullptr;
        return item(lazy, i).release().ptr();
      },
      nullptr);
}

PyObject* sequence_item(PyObject* self, Py_ssize_t i) noexcept {
  return guarded([&]() -> PyObject* { return item(*lazy_of(self), i).release().ptr(); }, nullptr);
}

PyObject* get_attribute(PyObject* self, PyObject* name) noexcept {
  return guarded(
      [&]() -> PyObject* {
        const Lazy& lazy = *lazy_of(self);
        const std::ptrdiff_t field = field_of(lazy, name);
        if (field >= 0) return child_value(lazy, static_cast<std::size_t>(field)).release().ptr();
        return PyObject_GenericGetAttr(self, name);
      },
      nullptr);
}

Py_ssize_t length(PyObject* self) noexcept {
  return guarded([&] { return static_cast<Py_ssize_t>(size_of(*lazy_of(self))); }, Py_ssize_t{-1});
}

int contains(PyObject* self, PyObject* value) noexcept {
  return guarded(
      [&]() -> int {
        const Lazy& lazy = *lazy_of(self);
        if (lazy.decoder->node().kind == TypeKind::record) return field_of(lazy, value) >= 0 ? 1 : 0;
        return PySequence_Contains(copy_of(lazy).ptr(), value);
      },
      -1);
}

PyObject* iterate(PyObject* self) noexcept {
  return guarded(
      [&]() -> PyObject* {
        const TypeKind kind = lazy_of(self)->decoder->node().kind;
        if (kind == TypeKind::record) return PyObject_GetIter(keys_of(*lazy_of(self)).ptr());
        if (kind == TypeKind::map) return PyObject_GetIter(copy_of(*lazy_of(self)).ptr());
        const Lazy& lazy = *lazy_of(self);
        records::Budget budget(lazy.decoder->file_bytes());
        for (std::size_t child = 0; kind != TypeKind::fixed && child < lazy.decoder->node().children.size(); ++child)
          budget.charge(lazy.decoder->child(child).cost(), size_of(lazy), lazy.decoder->node());
        return PySeqIter_New(self);
      },
      nullptr);
}

PyObject* compare(PyObject* self, PyObject* other, int operation) noexcept {
  return guarded(
      [&]() -> PyObject* {
        const nb::object mine = copy_of(*lazy_of(self));
        const nb::object theirs =
            Py_TYPE(other) == lazy_type ? copy_of(*lazy_of(other)) : nb::borrow<nb::object>(other);
        return PyObject_RichCompare(mine.ptr(), theirs.ptr(), operation);
      },
      nullptr);
}

PyObject* represent(PyObject* self) noexcept {
  return guarded([&]() -> PyObject* { return PyUnicode_FromFormat("<lazy %R>", copy_of(*lazy_of(self)).ptr()); },
                 nullptr);
}

void deallocate(PyObject* self) noexcept {
  PyTypeObject* type = Py_TYPE(self);
  std::destroy_at(&lazy_of(self)->source);
  PyObject_Free(self);
  Py_DECREF(type);
}

PyObject* copy_method(PyObject* self, PyObject* /*unused*/) noexcept {
  return guarded([&]() -> PyObject* { return copy_of(*lazy_of(self)).release().ptr(); }, nullptr);
}

PyObject* keys_method(PyObject* self, PyObject* /*unused*/) noexcept {
  return guarded([&]() -> PyObject* { return keys_of(*lazy_of(self)).release().ptr(); }, nullptr);
}

std::array methods{
    PyMethodDef{"copy", copy_method, METH_NOARGS, "copy()\n--\n\nThe value as an object of the caller's own."},
    PyMethodDef{"keys", keys_method, METH_NOARGS, "keys()\n--\n\nThe keys of a dict, in its order."},
    PyMethodDef{nullptr, nullptr, 0, nullptr}};

}  // namespace

nb::object lazy_value(const std::shared_ptr<const RecordSource>& source, const Decoder& decoder, std::uint64_t i) {
  const Node& node = decoder.node();
  if (node.null(i)) return nb::none();
  switch (node.kind) {
    case TypeKind::choice: {
      const auto [child, at] = node.chosen(i);
      return lazy_value(source, decoder.child(static_cast<std::size_t>(child - node.children.data())), at);
    }
    case TypeKind::list:
    case TypeKind::tuple:
      if (decoder.child(0).numeric()) {
        const auto range = node.range(i);
        return decoder.child(0).view(range.begin, range.end);
      }
      break;
    case TypeKind::array: return decoder.array_view(i);
    case TypeKind::fixed:
    case TypeKind::record:
    case TypeKind::map: break;
    default: return decoder.decode(i);
  }
  auto* lazy = PyObject_New(Lazy, lazy_type);
  if (lazy == nullptr) throw nb::python_error();
  std::construct_at(&lazy->source, source);
  lazy->decoder = &decoder;
  lazy->place = i;
  return nb::steal(reinterpret_cast<PyObject*>(lazy));  // NOLINT: CPython's own inheritance
}

void bind_lazy(const nb::module_& module) {
  std::string doc = "A place in the data, decoded only where it is touched.";
  std::array slots{slot(Py_tp_dealloc, deallocate),    slot(Py_tp_getattro, get_attribute),
                   slot(Py_tp_repr, represent),        slot(Py_tp_iter, iterate),
                   slot(Py_tp_richcompare, compare),   slot(Py_tp_hash, PyObject_HashNotImplemented),
                   slot(Py_mp_subscript, subscript),   slot(Py_mp_length, length),
                   slot(Py_sq_item, sequence_item),    slot(Py_sq_length, length),
                   slot(Py_sq_contains, contains),     PyType_Slot{Py_tp_methods, methods.data()},
                   PyType_Slot{Py_tp_doc, doc.data()}, PyType_Slot{0, nullptr}};
  PyType_Spec spec{"onecopy._core.Lazy", sizeof(Lazy), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                   slots.data()};
  lazy_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));  // NOLINT: CPython's own inheritance
  if (lazy_type == nullptr) throw nb::python_error();
  module.attr("Lazy") = nb::borrow(reinterpret_cast<PyObject*>(lazy_type));  // NOLINT
}

}  // namespace onecopy::bindings
