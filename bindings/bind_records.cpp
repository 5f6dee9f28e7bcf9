#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <memory>

#include "array_file_handle.hpp"
#include "bindings.hpp"
#include "records/arrow.hpp"
#include "records/rows.hpp"
#include "records/take.hpp"

namespace onecopy::bindings {
namespace {

// The slots of rows[i]: nanobind's own calls take as long as decoding a field does.
nb::object item(PyObject* self, Py_ssize_t index) { return nb::inst_ptr<Rows>(self)->value(index); }

// Python sequences adjust negative indices before sq_item only if mp_subscript is missing.
PyObject* subscript(PyObject* self, PyObject* key) {
  if (PyIndex_Check(key) != 0) {
    const Py_ssize_t index = PyNumber_AsSsize_t(key, PyExc_IndexError);
    if (index != -1 || PyErr_Occurred() == nullptr) return item(self, index).release().ptr();
    if (PyErr_ExceptionMatches(PyExc_TypeError) == 0) return nullptr;
    PyErr_Clear();  // an array with more than one element
  }
  return PyObject_CallMethod(self, "_other_index", "(O)", key);
}

Py_ssize_t length(PyObject* self) noexcept { return static_cast<Py_ssize_t>(nb::inst_ptr<Rows>(self)->size()); }

const std::array rows_slots{slot<subscript>(Py_mp_subscript), slot(Py_mp_length, length), slot<item>(Py_sq_item),
                            slot(Py_sq_length, length), PyType_Slot{0, nullptr}};

// rows.lazy: rows whose lazy[i] makes a view.
struct LazyRows {
  Rows rows;
};

PyObject* lazy_item(PyObject* self, PyObject* key) {
  const Py_ssize_t index = PyNumber_AsSsize_t(key, PyExc_IndexError);
  if (index == -1 && PyErr_Occurred() != nullptr) return nullptr;
  const Rows& rows = nb::inst_ptr<LazyRows>(self)->rows;
  const auto decoder = rows.decoder();
  return lazy_value(rows.source(), *decoder, rows.at(index)).release().ptr();
}

Py_ssize_t lazy_length(PyObject* self) noexcept {
  return static_cast<Py_ssize_t>(nb::inst_ptr<LazyRows>(self)->rows.size());
}

const std::array lazy_slots{slot<lazy_item>(Py_mp_subscript), slot(Py_mp_length, lazy_length), PyType_Slot{0, nullptr}};

// Iterates over rows, forwards or backwards, with a common budget, except over a selection, which may contain the same
// row any number of times.
struct RowIterator {
  nb::object rows;  // of the class Rows
  records::Budget budget;
  std::uint64_t done;
  bool backwards;
};

nb::object row_iterator(const nb::object& self, bool backwards) {
  const Rows& rows = nb::cast<const Rows&>(self);
  const auto decoder = rows.decoder();
  return nb::cast(RowIterator{self, records::Budget(decoder->file_bytes()), 0, backwards});
}

PyObject* iterator_itself(PyObject* self) noexcept { return nb::borrow(self).release().ptr(); }

PyObject* next_row(PyObject* self) {
  RowIterator& iterator = *nb::inst_ptr<RowIterator>(self);
  const Rows& rows = *nb::inst_ptr<Rows>(iterator.rows);
  const std::uint64_t size = rows.size();
  if (iterator.done >= size) return nullptr;  // the end
  const auto row = static_cast<Py_ssize_t>(iterator.backwards ? size - 1 - iterator.done : iterator.done);
  ++iterator.done;
  return (rows.indices() ? rows.value(row) : rows.next(row, iterator.budget)).release().ptr();
}

int visit_iterator(PyObject* self, visitproc visit, void* arg) noexcept {
  const int stop = visit(reinterpret_cast<PyObject*>(Py_TYPE(self)), arg);  // NOLINT: CPython's own inheritance
  if (stop != 0 || !nb::inst_ready(self)) return stop;
  return visit(nb::inst_ptr<RowIterator>(self)->rows.ptr(), arg);
}

const std::array iterator_slots{slot(Py_tp_iter, iterator_itself), slot<next_row>(Py_tp_iternext),
                                slot(Py_tp_traverse, visit_iterator), PyType_Slot{0, nullptr}};

nb::list fields(const Rows& rows) {
  nb::list names;
  const auto decoder = rows.decoder();
  const auto& node = decoder->node();
  if (node.kind == records::TypeKind::record)
    for (std::size_t i = 0; i < node.children.size(); ++i) names.append(decoder->name(i));
  return names;
}

// (kind, may be None, bytes of a number, name, ndim, fields, children)
nb::tuple type_of(const records::Node& node) {
  nb::list children;
  for (const auto& child : node.children) children.append(type_of(child));
  return nb::make_tuple(std::string(to_string(node.kind)), node.validity.first != nullptr, node.data.width,
                        node.type->name, node.type->ndim, node.type->fields, children);
}

nb::object places(const Rows& rows) {
  if (!rows.indices()) return nb::none();
  nb::list places;
  for (const std::uint64_t place : *rows.indices()) places.append(place);
  return places;
}

Shared<const RecordSource> open_records(const ArrayFileHandle& arrays, nb::object resolve) {
  const auto file = arrays.pin();
  return make_shared<const RecordSource>(records::RecordFile::of(*file), std::move(resolve));
}

bool is_table(const records::Node& node) {
  return node.kind == records::TypeKind::record && node.validity.first == nullptr;
}

// The file, its rows, and the class that presents them: "dict", "table" (all rows are dicts with str keys) or "list".
// `resolve` gets pickles=True if the file is trusted and was written with pickled values.
std::tuple<std::unique_ptr<ArrayFileHandle>, Shared<const RecordSource>, std::string_view> open_rows(
    const std::filesystem::path& path, nb::object resolve, bool trusted, const std::optional<IdentityTuple>& expected,
    const std::optional<Shared<const FileHandle>>& handle) {
  const auto file = open_file(path, {}, expected, handle);
  const auto& metadata = file->index().metadata();
  const auto codec = metadata.find("codec");
  if (trusted && codec != metadata.end() && codec->second == "pickle")
    resolve = nb::module_::import_("functools").attr("partial")(resolve, nb::arg("pickles") = true);
  auto source = make_shared<const RecordSource>(records::RecordFile::of(*file), std::move(resolve));
  const auto opened = source.pin();
  const bool is_dict = opened->file->schema().container == "dict";
  const std::string_view kind = is_dict ? "dict" : is_table(opened->decoder.node()) ? "table" : "list";
  return {std::make_unique<ArrayFileHandle>(file), std::move(source), kind};
}

}  // namespace

void bind_records(nb::module_& module) {
  bind_lazy(module);

  using SharedSource = Shared<const RecordSource>;
  nb::class_<SharedSource>(module, "RecordSource", "An opened records file.")
      .def_prop_ro("container",
                   &of_pinned<[](const RecordSource& of) { return of.file->schema().container; }, SharedSource>)
      .def_prop_ro("payload", &of_pinned<[](const RecordSource& of) { return of.file->payload(); }, SharedSource>)
      .def_prop_ro("views", &of_pinned<[](const RecordSource& of) { return of.views.views() - 1; }, SharedSource>);

  (void)nb::class_<LazyRows>(module, "LazyRows", nb::type_slots(lazy_slots.data()),
                             "Rows that are decoded when they are accessed.");

  (void)nb::class_<RowIterator>(module, "RowIterator", nb::type_slots(iterator_slots.data()), "An iterator over rows.");

  nb::class_<Rows>(module, "Rows", nb::type_slots(rows_slots.data()),
                   "All rows of a records file, or some of them in any order.")
      .def(nb::init<const Rows&>(), nb::arg("rows"))
      .def(
          "__init__",
          [](Rows* self, const SharedSource& shared, std::int64_t start, std::int64_t step, std::uint64_t size) {
            const auto source = shared.pin();
            new (self) Rows(source, source->decoder, start, step, size);
          },
          nb::arg("source"), nb::arg("start"), nb::arg("step"), nb::arg("size"))
      .def(
          "__init__", [](Rows* self, const SharedSource& source) { new (self) Rows(source.pin()); }, nb::arg("source"))
      .def(
          "_rows_iter", [](const nb::object& self, bool backwards) { return row_iterator(self, backwards); },
          nb::kw_only(), nb::arg("backwards"),
          nb::sig("def _rows_iter(self, *, backwards: bool) -> typing.Iterator[typing.Any]"))
      .def_prop_ro(
          "_rows_alike",
          [](const Rows& self) {
            const auto decoder = self.decoder();
            return decoder->cost().bits == 0;
          },
          "Whether all rows are equal.")
      .def("_rows_slice", &Rows::slice, nb::arg("start"), nb::arg("step"), nb::arg("size"))
      .def("_rows_select", &Rows::select, nb::arg("rows"))
      .def(
          "_rows_field", [](const Rows& self, nb::handle name) { return self.field(name); }, nb::arg("name"))
      .def(
          "_rows_take_columns",
          [](const Rows& self, nb::handle indices, nb::handle columns, nb::handle ragged, nb::handle wrap) {
            return take_columns(self, indices, columns, {ragged, wrap});
          },
          nb::arg("indices"), nb::arg("columns").none(), nb::kw_only(), nb::arg("ragged"), nb::arg("wrap").none())
      .def(
          "_rows_values", [](const Rows& self, nb::handle indices) { return take_rows(self, indices); },
          nb::arg("indices"))
      .def("_rows_arrow_schema", &arrow_schema)
      .def("_rows_arrow_array", &arrow_array)
      .def("_rows_arrow_stream", &arrow_stream)
      .def("_rows_close", &Rows::close)
      .def_prop_ro("_rows_fields", &fields)
      .def_prop_ro(
          "_rows_are_dicts",
          [](const Rows& self) {
            const auto decoder = self.decoder();
            return is_table(decoder->node());
          },
          "Whether all rows are dicts with str keys.")
      .def_prop_ro("_rows_type",
                   [](const Rows& self) {
                     const auto decoder = self.decoder();
                     return type_of(decoder->node());
                   })
      .def(
          "_rows_view",
          [](const Rows& self) {
            const auto source = self.source();
            const auto decoder = self.decoder();
            expect_whole(*source->file->arrays().mapping());
            return decoder->view(0, decoder->node().length);
          },
          nb::sig("def _rows_view(self) -> typing.Any"))
      .def_prop_ro("_rows_range",
                   [](const Rows& self) { return nb::make_tuple(self.start(), self.step(), self.size()); })
      .def_prop_ro("_rows_places", &places, nb::sig("def _rows_places(self) -> list[int] | None"))
      .def_prop_ro("closed", &Rows::closed)
      .def_prop_ro(
          "lazy", [](const Rows& self) { return LazyRows{self}; },
          "The same rows. `lazy[i]` decodes only the parts that are accessed, and returns views of numbers.");

  bind_dict(module);
  module.def("open_records", &open_records, nb::arg("arrays"), nb::arg("resolve"));
  module.def("open_rows", &open_rows, nb::arg("path"), nb::arg("resolve"), nb::kw_only(), nb::arg("trusted") = false,
             nb::arg("expected") = nb::none(), nb::arg("handle") = nb::none(),
             "Return (file, rows, their kind: dict, table or list).");
}

}  // namespace onecopy::bindings
