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
  PyObject_HEAD Pin<const RecordSource> source;
  const Decoder* decoder;
  std::uint64_t place;
};

// Made once, when the module is loaded. A dict is not a sequence: numpy and torch take the items of what has `sq_item`.
PyTypeObject* lazy_mapping = nullptr;
PyTypeObject* lazy_sequence = nullptr;
PyTypeObject* lazy_iterator = nullptr;

// Over the items of a list or a tuple, with a common budget: many of them may refer to the same bytes.
struct LazyIterator {
  PyObject_HEAD nb::object lazy;
  records::Budget budget;
  Py_ssize_t next;
};

Lazy* lazy_of(PyObject* self) noexcept { return reinterpret_cast<Lazy*>(self); }  // NOLINT: CPython's own inheritance

// The number of a field of a record that this row has, or -1.
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

nb::object lazy_value(const Pin<const RecordSource>& source, const Decoder& decoder, std::uint64_t i,
                      records::Budget& budget);

// Item i of a list or a tuple.
nb::object item(const Lazy& lazy, Py_ssize_t i, records::Budget& budget) {
  const Node& node = lazy.decoder->node();
  const bool is_fixed = node.kind == TypeKind::fixed;
  const auto range = is_fixed ? Node::Range{0, node.children.size()} : node.range(lazy.place);  // read once
  const auto size = static_cast<Py_ssize_t>(range.size());
  if (i < 0) i += size;
  if (i < 0 || i >= size) throw nb::index_error("index out of range");
  const auto at = range.begin + static_cast<std::uint64_t>(i);
  if (is_fixed) return lazy_value(lazy.source, lazy.decoder->child(at), lazy.place, budget);
  return lazy_value(lazy.source, lazy.decoder->child(0), at, budget);
}

nb::object item(const Lazy& lazy, Py_ssize_t i) {
  records::Budget budget(lazy.decoder->file_bytes());
  return item(lazy, i, budget);
}

nb::object copy_of(const Lazy& lazy) {
  nb::object value = lazy.decoder->decode(lazy.place);
  expect_whole(*lazy.source->file->arrays().mapping());
  return value;
}

nb::list keys_of(const Lazy& lazy) {
  nb::list keys;
  if (lazy.decoder->node().kind != TypeKind::record) return nb::list(copy_of(lazy));
  for (const std::uint32_t field : lazy.decoder->node().fields(lazy.place)) keys.append(lazy.decoder->name(field));
  return keys;
}

PyObject* subscript(PyObject* self, PyObject* key) {
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
}

nb::object sequence_item(PyObject* self, Py_ssize_t i) { return item(*lazy_of(self), i); }

// Whether an attribute is Python's or this type's and never a field: a method, or a name `_*_`. numpy, ctypes and
// others ask objects for such names, and take what `__array_interface__` or `_as_parameter_` returns for an address.
bool is_reserved(PyObject* name) {
  if (PyUnicode_Check(name) == 0) return true;
  const Py_ssize_t length = PyUnicode_GET_LENGTH(name);
  if (length > 0 && PyUnicode_READ_CHAR(name, 0) == '_' && PyUnicode_READ_CHAR(name, length - 1) == '_') return true;
  const int found = PyDict_Contains(lazy_mapping->tp_dict, name);
  if (found < 0) throw nb::python_error();
  return found == 1;
}

PyObject* get_attribute(PyObject* self, PyObject* name) {
  if (is_reserved(name)) return PyObject_GenericGetAttr(self, name);
  const Lazy& lazy = *lazy_of(self);
  const std::ptrdiff_t field = field_of(lazy, name);
  if (field >= 0) return child_value(lazy, static_cast<std::size_t>(field)).release().ptr();
  return PyObject_GenericGetAttr(self, name);
}

Py_ssize_t length(PyObject* self) {
  const auto size = static_cast<Py_ssize_t>(size_of(*lazy_of(self)));
  expect_whole(*lazy_of(self)->source->file->arrays().mapping());
  return size;
}

int contains(PyObject* self, PyObject* value) {
  const Lazy& lazy = *lazy_of(self);
  if (lazy.decoder->node().kind == TypeKind::record) return field_of(lazy, value) >= 0 ? 1 : 0;
  return PySequence_Contains(copy_of(lazy).ptr(), value);
}

PyObject* iterate(PyObject* self) {
  const TypeKind kind = lazy_of(self)->decoder->node().kind;
  if (kind == TypeKind::record) return PyObject_GetIter(keys_of(*lazy_of(self)).ptr());
  if (kind == TypeKind::map) return PyObject_GetIter(copy_of(*lazy_of(self)).ptr());
  const Lazy& lazy = *lazy_of(self);
  records::Budget budget(lazy.decoder->file_bytes());
  for (std::size_t child = 0; kind != TypeKind::fixed && child < lazy.decoder->node().children.size(); ++child)
    budget.charge(lazy.decoder->child(child).cost(), size_of(lazy), lazy.decoder->node());
  auto* iterator = PyObject_New(LazyIterator, lazy_iterator);
  if (iterator == nullptr) throw nb::python_error();
  std::construct_at(&iterator->lazy, nb::borrow(self));
  std::construct_at(&iterator->budget, budget);
  iterator->next = 0;
  return reinterpret_cast<PyObject*>(iterator);  // NOLINT: CPython's own inheritance
}

PyObject* iterator_itself(PyObject* self) noexcept { return nb::borrow(self).release().ptr(); }

PyObject* next_item(PyObject* self) {
  auto& iterator = *reinterpret_cast<LazyIterator*>(self);  // NOLINT: CPython's own inheritance
  const Lazy& lazy = *lazy_of(iterator.lazy.ptr());
  if (std::cmp_greater_equal(iterator.next, size_of(lazy))) return nullptr;  // the end
  return item(lazy, iterator.next++, iterator.budget).release().ptr();
}

PyObject* compare(PyObject* self, PyObject* other, int operation) {
  const nb::object mine = copy_of(*lazy_of(self));
  const nb::object theirs = Py_TYPE(other) == lazy_mapping || Py_TYPE(other) == lazy_sequence
                                ? copy_of(*lazy_of(other))
                                : nb::borrow<nb::object>(other);
  return PyObject_RichCompare(mine.ptr(), theirs.ptr(), operation);
}

PyObject* represent(PyObject* self) { return PyUnicode_FromFormat("<lazy %R>", copy_of(*lazy_of(self)).ptr()); }

void deallocate(PyObject* self) noexcept {
  PyTypeObject* type = Py_TYPE(self);
  if (type == lazy_iterator)
    std::destroy_at(&reinterpret_cast<LazyIterator*>(self)->lazy);  // NOLINT: CPython's own inheritance
  else
    std::destroy_at(&lazy_of(self)->source);
  PyObject_Free(self);
  Py_DECREF(type);
}

nb::object copy_method(PyObject* self, PyObject* /*unused*/) { return copy_of(*lazy_of(self)); }

nb::object keys_method(PyObject* self, PyObject* /*unused*/) { return keys_of(*lazy_of(self)); }

PyMethodDef copy_entry{"copy", Guarded<copy_method>::call, METH_NOARGS,
                       "copy()\n--\n\nReturn the value as a new Python object."};
std::array dict_methods{
    copy_entry,
    PyMethodDef{"keys", Guarded<keys_method>::call, METH_NOARGS, "keys()\n--\n\nReturn the keys of the dict in order."},
    PyMethodDef{nullptr, nullptr, 0, nullptr}};
std::array list_methods{copy_entry, PyMethodDef{nullptr, nullptr, 0, nullptr}};

template <std::size_t count>
PyTypeObject* make_type(const char* name, std::array<PyType_Slot, count> slots, int size = sizeof(Lazy)) {
  PyType_Spec spec{name, size, 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots.data()};
  auto* type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));  // NOLINT: CPython's own inheritance
  if (type == nullptr) throw nb::python_error();
  return type;
}

nb::object value_or_lazy(const Pin<const RecordSource>& source, const Decoder& decoder, std::uint64_t i,
                         records::Budget& budget) {
  const Node& node = decoder.node();
  if (node.null(i)) return nb::none();
  switch (node.kind) {
    case TypeKind::choice: {
      const auto [child, at] = node.chosen(i);
      return value_or_lazy(source, decoder.child(static_cast<std::size_t>(child - node.children.data())), at, budget);
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
    default: return decoder.decode(i, budget);
  }
  const bool is_dict = node.kind == TypeKind::record || node.kind == TypeKind::map;
  auto* lazy = PyObject_New(Lazy, is_dict ? lazy_mapping : lazy_sequence);
  if (lazy == nullptr) throw nb::python_error();
  std::construct_at(&lazy->source, source);
  lazy->decoder = &decoder;
  lazy->place = i;
  return nb::steal(reinterpret_cast<PyObject*>(lazy));  // NOLINT: CPython's own inheritance
}

nb::object lazy_value(const Pin<const RecordSource>& source, const Decoder& decoder, std::uint64_t i,
                      records::Budget& budget) {
  nb::object value = value_or_lazy(source, decoder, i, budget);
  expect_whole(*source->file->arrays().mapping());  // bytes of lost pages read as zeros
  return value;
}

}  // namespace

nb::object lazy_value(const Pin<const RecordSource>& source, const Decoder& decoder, std::uint64_t i) {
  records::Budget budget(decoder.file_bytes());
  return lazy_value(source, decoder, i, budget);
}

void bind_lazy(const nb::module_& module) {
  std::string dict = "A dict in the data. Only the parts that are accessed are decoded.";
  std::string list = "A list or a tuple in the data. Only the parts that are accessed are decoded.";
  lazy_mapping = make_type("onecopy._core.LazyMapping",
                           std::array{slot(Py_tp_dealloc, deallocate), slot<get_attribute>(Py_tp_getattro),
                                      slot<represent>(Py_tp_repr), slot<iterate>(Py_tp_iter),
                                      slot<compare>(Py_tp_richcompare), slot(Py_tp_hash, PyObject_HashNotImplemented),
                                      slot<subscript>(Py_mp_subscript), slot<length>(Py_mp_length),
                                      slot<contains>(Py_sq_contains), PyType_Slot{Py_tp_methods, dict_methods.data()},
                                      PyType_Slot{Py_tp_doc, dict.data()}, PyType_Slot{0, nullptr}});
  lazy_sequence =
      make_type("onecopy._core.LazySequence",
                std::array{slot(Py_tp_dealloc, deallocate), slot<represent>(Py_tp_repr), slot<iterate>(Py_tp_iter),
                           slot<compare>(Py_tp_richcompare), slot(Py_tp_hash, PyObject_HashNotImplemented),
                           slot<subscript>(Py_mp_subscript), slot<length>(Py_mp_length),
                           slot<sequence_item>(Py_sq_item), slot<length>(Py_sq_length), slot<contains>(Py_sq_contains),
                           PyType_Slot{Py_tp_methods, list_methods.data()}, PyType_Slot{Py_tp_doc, list.data()},
                           PyType_Slot{0, nullptr}});
  lazy_iterator = make_type("onecopy._core.LazyIterator",
                            std::array{slot(Py_tp_dealloc, deallocate), slot(Py_tp_iter, iterator_itself),
                                       slot<next_item>(Py_tp_iternext), PyType_Slot{0, nullptr}},
                            sizeof(LazyIterator));
  module.attr("LazyMapping") = nb::borrow(reinterpret_cast<PyObject*>(lazy_mapping));    // NOLINT
  module.attr("LazySequence") = nb::borrow(reinterpret_cast<PyObject*>(lazy_sequence));  // NOLINT
}

}  // namespace onecopy::bindings
