#include "records/take.hpp"

#include <optional>
#include <string>
#include <utility>

#include "buffer.hpp"
#include "onecopy/records/budget.hpp"
#include "onecopy/records/take.hpp"

namespace onecopy::bindings {
namespace {

using records::Node;
using records::Places;
using records::TypeKind;

const char* numpy_name(DType dtype) {
  switch (dtype) {
    case DType::boolean: return "?";
    case DType::i8: return "i1";
    case DType::i16: return "i2";
    case DType::i32: return "i4";
    case DType::i64: return "i8";
    default: return "f8";
  }
}

bool nulls(const Node& node) noexcept { return node.validity.first != nullptr; }

// Lists of these are `ragged`: their items become an array, without a Python object for each.
bool has_form(const Node& node) noexcept {
  switch (node.kind) {
    case TypeKind::list:
    case TypeKind::tuple: return has_form(node.children[0]);
    case TypeKind::record:
    case TypeKind::fixed: return !nulls(node) && !node.children.empty();  // columns count the rows
    case TypeKind::array: return node.type->ndim == 1 && !node.type->scalar;
    default: return records::number_type(node).has_value();
  }
}

class Taking {
 public:
  explicit Taking(const ColumnForm& form) : form_(form), empty_(nb::module_::import_("numpy").attr("empty")) {}

  nb::object column(const Decoder& decoder, Places places) const {
    const Node& node = decoder.node();
    if (const auto dtype = records::number_type(node)) {
      return filled(nb::str(numpy_name(*dtype)), places.size(),
                    [&](std::span<std::byte> into) { records::take_numbers(node, places, into); });
    }
    if (!has_form(node)) return values(decoder, places);
    if (node.kind == TypeKind::record) return fields(decoder, places);
    if (node.kind == TypeKind::fixed) return positions(decoder, places);
    return lists(decoder, places);
  }

  static constexpr std::size_t between_signals = std::size_t{1} << 14U;  // rows

  static nb::list values(const Decoder& decoder, Places places) {
    constexpr std::size_t far = records::rows_ahead;
    const Node& node = decoder.node();
    const nb::object list = nb::steal(PyList_New(static_cast<Py_ssize_t>(places.size())));
    if (!list.is_valid()) throw nb::python_error();
    for (std::size_t k = 0; k < places.size(); ++k) {
      if (k + far < places.size()) records::prefetch(node, places[k + far]);
      if (k + far / 2 < places.size()) records::prefetch_items(node, places[k + far / 2]);
      PyList_SET_ITEM(list.ptr(), static_cast<Py_ssize_t>(k), decoder.decode(places[k]).release().ptr());
      if (k % between_signals == between_signals - 1) check_signals();
    }
    return nb::borrow<nb::list>(list);
  }

 private:
  nb::dict fields(const Decoder& decoder, Places places) const {
    nb::dict columns;
    for (std::size_t i = 0; i < decoder.node().children.size(); ++i)
      columns[decoder.name(i)] = column(decoder.child(i), places);
    return columns;
  }

  nb::tuple positions(const Decoder& decoder, Places places) const {
    nb::list columns;
    for (std::size_t i = 0; i < decoder.node().children.size(); ++i) columns.append(column(decoder.child(i), places));
    return nb::tuple(columns);
  }

  nb::object lists(const Decoder& decoder, Places places) const {
    const Node& node = decoder.node();
    std::int64_t total = 0;
    const nb::object offsets = filled(nb::str("i8"), places.size() + 1, [&](std::span<std::byte> into) {
      const std::span into_offsets(reinterpret_cast<std::int64_t*>(into.data()), places.size() + 1);  // NOLINT
      records::take_offsets(node, places, into_offsets);
      total = into_offsets.back();
    });
    records::expect_paid(node, places, static_cast<std::uint64_t>(total), decoder.file_bytes());
    return form_.ragged(items(decoder, places, static_cast<std::uint64_t>(total)), offsets);
  }

  nb::object items(const Decoder& decoder, Places places, std::uint64_t total) const {
    const Node& node = decoder.node();
    if (node.kind == TypeKind::array)
      return filled(decoder.dtype(), total,
                    [&](std::span<std::byte> into) { records::take_items(node, places, into); });
    const Decoder& child = decoder.child(0);
    if (const auto dtype = records::number_type(child.node()))
      return filled(nb::str(numpy_name(*dtype)), total,
                    [&](std::span<std::byte> into) { records::take_item_numbers(node, places, into); });
    return column(child, records::item_places(node, places, total));
  }

  // Creates an array of `count` elements, filled without the GIL.
  template <class Fill>
  nb::object filled(nb::handle dtype, std::uint64_t count, const Fill& fill) const {
    nb::object array = empty_(count, dtype);
    {
      const Buffer buffer(array.attr("view")("u1"), PyBUF_WRITABLE);  // datetime64 has no buffer protocol
      const auto into = buffer.as<std::byte>();
      const ReleaseGil release;
      fill(into);
    }
    return form_.wrap.is_none() ? array : form_.wrap(array);
  }

  ColumnForm form_;
  nb::object empty_;
};

std::size_t field_of(const Decoder& decoder, nb::handle name) {
  const std::ptrdiff_t field = PyUnicode_Check(name.ptr()) != 0 ? decoder.find(name) : -1;
  if (field >= 0) return static_cast<std::size_t>(field);
  PyErr_SetObject(PyExc_KeyError, name.ptr());
  throw nb::python_error();
}

}  // namespace

std::vector<std::uint64_t> places_of(const Rows& rows, nb::handle indices) {
  const Buffer buffer(indices, PyBUF_FORMAT | PyBUF_ND);
  const auto& info = buffer.info();
  if (info.ndim != 1 || info.itemsize != 8 || info.format == nullptr ||
      std::string_view("lq").find(info.format[0]) == std::string_view::npos)
    throw nb::type_error("indices must be a one-dimensional int64 array");
  std::vector<std::uint64_t> places;
  const auto numbers = buffer.as<const std::int64_t>();
  places.reserve(numbers.size());
  for (const std::int64_t row : numbers) places.push_back(rows.at(static_cast<Py_ssize_t>(row)));
  return places;
}

nb::dict take_columns(const Rows& rows, nb::handle indices, nb::handle columns, const ColumnForm& form) {
  const auto source = rows.source();
  const auto pinned = rows.decoder();
  const Decoder& decoder = *pinned;
  if (decoder.node().kind != TypeKind::record) throw nb::type_error("only rows that are dicts have columns");
  const auto places = places_of(rows, indices);
  const Taking taking(form);
  nb::dict taken;
  if (columns.is_none())
    for (std::size_t i = 0; i < decoder.node().children.size(); ++i)
      taken[decoder.name(i)] = taking.column(decoder.child(i), places);
  else
    for (const nb::handle name : columns) taken[name] = taking.column(decoder.child(field_of(decoder, name)), places);
  expect_whole(*source->file->arrays().mapping());
  return taken;
}

nb::list take_rows(const Rows& rows, nb::handle indices) {
  const auto source = rows.source();
  const auto pinned = rows.decoder();
  const Decoder& decoder = *pinned;
  const auto places = places_of(rows, indices);
  nb::list taken = Taking::values(decoder, places);
  expect_whole(*source->file->arrays().mapping());
  return taken;
}

}  // namespace onecopy::bindings
