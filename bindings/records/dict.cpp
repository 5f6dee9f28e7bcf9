// d[key] as a slot of the type: from a Python object to a Key, its row, and the value there, without Python code.

#include <array>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "onecopy/records/hash_index.hpp"
#include "records/rows.hpp"

namespace onecopy::bindings {
namespace {

using records::HashIndex;
using records::Key;

struct OpenedDict {
  static constexpr bool holds_python = true;

  explicit OpenedDict(Pin<const RecordSource> of) : source(std::move(of)), index(HashIndex::of(*source->file)) {}

  const Mapping& mapping() const { return *source->file->arrays().mapping(); }

  Pin<const RecordSource> source;
  WithoutGil<HashIndex> index;
};

struct DictRows {
  Shared<const OpenedDict> opened;
};

struct LazyDict {
  DictRows dict;
};

// Limits how deep a key may be: from 3.14 on, Python counts bytes of stack and not calls, and `key_of` needs more of
// them.
struct RecursionLevel {
  RecursionLevel() {
    if (depth == most) {
      PyErr_SetString(PyExc_RecursionError, "maximum recursion depth exceeded in a key");
      throw nb::python_error();
    }
    if (Py_EnterRecursiveCall(" in a key") != 0) throw nb::python_error();
    ++depth;
  }
  RecursionLevel(const RecursionLevel&) = delete;
  RecursionLevel& operator=(const RecursionLevel&) = delete;
  ~RecursionLevel() {
    --depth;
    Py_LeaveRecursiveCall();
  }

 private:
  static constexpr int most = 1000;  // as many as Python allows calls by default
  static inline thread_local int depth = 0;
};

// An object of a built-in type that may be equal to one of another type: a subclass, a number of numpy, a decimal, a
// fraction. None: there is none.
nb::object twin_of(PyObject* self) {
  if (PyUnicode_Check(self) != 0) return owned(PyUnicode_FromObject(self));
  if (PyBytes_Check(self) != 0)
    return owned(PyBytes_FromStringAndSize(PyBytes_AS_STRING(self), PyBytes_GET_SIZE(self)));
  if (PyTuple_Check(self) != 0) return owned(PySequence_Tuple(self));
  if (PyFloat_Check(self) != 0) return owned(PyFloat_FromDouble(PyFloat_AS_DOUBLE(self)));
  if (PyIndex_Check(self) != 0) return owned(PyNumber_Index(self));
  const auto* numbers = Py_TYPE(self)->tp_as_number;
  return numbers != nullptr && numbers->nb_float != nullptr ? owned(PyNumber_Float(self)) : nb::object();
}

// An equal key of built-in types only. None: no dict in a file can have this key. Raises for unhashable keys, as dicts
// do.
nb::object plain_key(nb::handle object) {
  PyObject* self = object.ptr();
  if (is_leaf(self)) return nb::borrow(object);
  const RecursionLevel level;
  if (PyTuple_CheckExact(self)) {
    nb::list items;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(self); ++i) {
      const nb::object item = plain_key(PyTuple_GET_ITEM(self, i));
      if (!item.is_valid()) return {};
      items.append(item);
    }
    return nb::tuple(items);
  }
  const Py_hash_t hash = PyObject_Hash(self);
  if (hash == -1) throw nb::python_error();
  const nb::object twin = twin_of(self);
  if (!twin.is_valid() || PyObject_Hash(twin.ptr()) != hash) return {};
  const int same = PyObject_RichCompareBool(self, twin.ptr(), Py_EQ);
  if (same < 0) throw nb::python_error();
  return same != 0 ? plain_key(twin) : nb::object();
}

Key bigint_key(nb::handle number) {
  const auto size = nb::cast<std::size_t>(number.attr("bit_length")()) / 8 + 1;
  const nb::object bytes = number.attr("to_bytes")(size, "little", nb::arg("signed") = true);
  return Key::of_bigint({PyBytes_AS_STRING(bytes.ptr()), size});
}

Key integer_key(PyObject* number) {
  int overflow = 0;
  const long long value = PyLong_AsLongLongAndOverflow(number, &overflow);
  return overflow == 0 ? Key::of(std::int64_t{value}) : bigint_key(number);
}

// None: a str with lone surrogates, which no key in a file has.
std::optional<Key> text_key(PyObject* text) {
  Py_ssize_t size = 0;
  const char* utf8 = PyUnicode_AsUTF8AndSize(text, &size);
  if (utf8 != nullptr) return Key::of(std::string_view(utf8, static_cast<std::size_t>(size)));
  if (PyErr_ExceptionMatches(PyExc_UnicodeEncodeError) == 0) throw nb::python_error();
  PyErr_Clear();
  return std::nullopt;
}

// The Key of a plain Python key. The Key refers to the text of `key`, which must outlive it.
std::optional<Key> key_of(PyObject* plain) {
  if (PyUnicode_CheckExact(plain)) return text_key(plain);
  if (PyBool_Check(plain)) return Key::of(std::int64_t{plain == Py_True});
  if (PyLong_CheckExact(plain)) return integer_key(plain);
  if (PyFloat_CheckExact(plain)) return Key::of(PyFloat_AS_DOUBLE(plain));
  if (PyBytes_CheckExact(plain))
    return Key::of_bytes({PyBytes_AS_STRING(plain), static_cast<std::size_t>(PyBytes_GET_SIZE(plain))});
  if (plain == Py_None) return Key{};
  std::vector<Key> items;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(plain); ++i) {
    auto item = key_of(PyTuple_GET_ITEM(plain, i));
    if (!item) return std::nullopt;
    items.push_back(std::move(*item));
  }
  return Key::of(std::move(items));
}

std::optional<std::uint64_t> find(const DictRows& dict, PyObject* object) {
  nb::object plain;  // kept until the key has been compared
  if (!is_leaf(object)) {
    plain = plain_key(object);  // may call anything, and that may close the dict
    if (!plain.is_valid()) return (void)dict.opened.pin(), std::nullopt;
    object = plain.ptr();
  }
  const auto opened = dict.opened.pin();
  const auto key = key_of(object);
  const auto row = key ? opened->index->find(*key) : std::nullopt;
  if (!row) expect_whole(opened->mapping());  // keys in lost pages read as zeros
  return row;
}

[[noreturn]] void raise_missing(PyObject* key) {
  const nb::object arguments = owned(PyTuple_Pack(1, key));  // PyTuple_Pack: a tuple key must stay one argument
  PyErr_SetObject(PyExc_KeyError, arguments.ptr());
  throw nb::python_error();
}

std::uint64_t row_of(const DictRows& dict, PyObject* key) {
  const auto row = find(dict, key);
  if (!row) raise_missing(key);
  return *row;
}

nb::object value_at(const DictRows& dict, std::uint64_t row) {
  const auto opened = dict.opened.pin();
  nb::object value = opened->source->decoder.child(1).decode(row);
  expect_whole(opened->mapping());  // bytes of lost pages read as zeros
  return value;
}

nb::object subscript(PyObject* self, PyObject* key) {
  const DictRows& dict = *nb::inst_ptr<DictRows>(self);
  return value_at(dict, row_of(dict, key));
}

int contains(PyObject* self, PyObject* key) { return find(*nb::inst_ptr<DictRows>(self), key) ? 1 : 0; }

Py_ssize_t length(PyObject* self) {
  const auto opened = nb::inst_ptr<DictRows>(self)->opened.pin();
  return static_cast<Py_ssize_t>(opened->source->decoder.node().length);
}

nb::object lazy_subscript(PyObject* self, PyObject* key) {
  const DictRows& dict = nb::inst_ptr<LazyDict>(self)->dict;
  const auto row = row_of(dict, key);  // first: comparing keys may close the dict
  const auto opened = dict.opened.pin();
  return lazy_value(opened->source, opened->source->decoder.child(1), row);
}

const std::array dict_slots{slot<subscript>(Py_mp_subscript), slot<length>(Py_mp_length),
                            slot<contains>(Py_sq_contains), PyType_Slot{0, nullptr}};
const std::array lazy_slots{slot<lazy_subscript>(Py_mp_subscript), PyType_Slot{0, nullptr}};

Rows part(const DictRows& dict, std::size_t position) {
  const auto opened = dict.opened.pin();
  const Decoder& decoder = opened->source->decoder;
  return {opened->source, decoder.child(position), 0, 1, decoder.node().length};
}

nb::list rows_of(const DictRows& dict, nb::handle keys) {
  nb::list rows;
  for (const nb::handle key : keys) rows.append(row_of(dict, key.ptr()));
  return rows;
}

}  // namespace

void bind_dict(const nb::module_& module) {
  (void)nb::class_<LazyDict>(module, "LazyDict", nb::type_slots(lazy_slots.data()),
                             "A dict whose values are decoded when they are accessed.");

  nb::class_<DictRows>(module, "DictRows", nb::type_slots(dict_slots.data()), "The key-value pairs in a records file.")
      .def(
          "__init__",
          [](DictRows* self, const Shared<const RecordSource>& source) {
            new (self) DictRows{make_shared<const OpenedDict>(source.pin())};
          },
          nb::arg("source"))
      .def(
          "get",
          [](const DictRows& self, nb::handle key, const nb::object& otherwise) {
            const auto row = find(self, key.ptr());
            return row ? value_at(self, *row) : otherwise;
          },
          nb::arg("key").none(), nb::arg("default") = nb::none(),
          nb::sig("def get(self, key: object, default: typing.Any = None) -> typing.Any"),
          "Return the value of a key, or `default`.")
      .def("_dict_rows", &rows_of, nb::arg("keys"))
      .def("_dict_part", &part, nb::arg("position"))
      .def("_dict_close", [](DictRows& self) { self.opened.close(); })
      .def_prop_ro("closed", [](const DictRows& self) { return self.opened.closed(); })
      .def_prop_ro(
          "lazy", [](const DictRows& self) { return LazyDict{self}; },
          "The same dict. `lazy[key]` decodes only the parts of the value that are accessed, and returns views of "
          "numbers.");
}

}  // namespace onecopy::bindings
