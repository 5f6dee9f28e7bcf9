#include "records/decoder.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>

#include "buffer.hpp"
#include "onecopy/base/error.hpp"
#include "onecopy/records/take.hpp"
#include "records/key_hashes.hpp"

namespace onecopy::bindings {
namespace {

using records::Node;
using records::TypeKind;

nb::object interned(const std::string& text) {
  PyObject* name = PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), nullptr);
  if (name == nullptr) throw nb::python_error();
  PyUnicode_InternInPlace(&name);
  return nb::steal(name);
}

// numpy's spelling of the numbers of a node.
const char* dtype_of(const Node& node) {
  constexpr std::array widths{"", "i1", "i2", "", "i4", "", "", "", "i8"};
  return node.kind == TypeKind::integer ? widths.at(node.data.width) : "f8";
}

// The budget of the values that this thread decodes. User code makes the objects of registered types, and may decode
// other rows meanwhile.
thread_local records::Budget* budget_in_use = nullptr;

class UseBudget {
 public:
  explicit UseBudget(records::Budget& budget) noexcept : before_(std::exchange(budget_in_use, &budget)) {}
  UseBudget(const UseBudget&) = delete;
  UseBudget& operator=(const UseBudget&) = delete;
  ~UseBudget() { budget_in_use = before_; }

 private:
  records::Budget* before_;
};

// The kinds of values that a place may hold: all alternatives of a choice.
void add_kinds(const Node& node, nb::list& kinds) {
  if (node.kind == TypeKind::choice)
    for (const Node& child : node.children) add_kinds(child, kinds);
  else
    kinds.append(std::string(to_string(node.kind)));
}

constexpr std::uint64_t between_signals = std::uint64_t{1} << 16U;  // items
constexpr std::uint64_t most_bytes = std::uint64_t{1} << 63U;

}  // namespace

Decoder::Decoder(const Node& node, Pin<const Source> source)
    : node_(&node), source_(std::move(source)), cost_(records::cost_of(node)) {
  children_.reserve(node.children.size());
  for (const Node& child : node.children) children_.emplace_back(child, source_);
  if (node.kind == TypeKind::record) make_templates();
}

void Decoder::make_templates() {
  for (const std::string& field : node_->type->fields) names_.push_back(interned(field));
  for (const auto& shape : node_->type->shapes) {
    nb::dict keys;
    for (const std::uint32_t field : shape) keys[names_[field]] = nb::none();
    templates_.push_back(std::move(keys));
  }
}

std::ptrdiff_t Decoder::find(nb::handle name) const {
  for (std::size_t i = 0; i < names_.size(); ++i)
    if (names_[i].is(name)) return static_cast<std::ptrdiff_t>(i);
  for (std::size_t i = 0; i < names_.size(); ++i)
    if (PyUnicode_Compare(names_[i].ptr(), name.ptr()) == 0) return static_cast<std::ptrdiff_t>(i);
  return -1;
}

bool Decoder::numeric() const noexcept {
  const bool numbers =
      node_->kind == TypeKind::integer || node_->kind == TypeKind::real || node_->kind == TypeKind::number;
  return numbers && node_->validity.first == nullptr;
}

nb::object Decoder::decode(std::uint64_t i) const {
  records::Budget budget(source_->file_bytes);
  return decode(i, budget);
}

nb::object Decoder::decode(std::uint64_t i, records::Budget& budget) const {
  const UseBudget use(budget);
  return value(i);
}

std::string_view Decoder::charged_text(std::uint64_t i) const {
  const auto text = node_->text(i);
  budget_in_use->charge_bytes(text.size(), *node_);
  return text;
}

nb::object Decoder::known(std::uint64_t i) const {
  switch (node_->kind) {
    case TypeKind::null: return nb::none();
    case TypeKind::boolean: return nb::borrow(node_->bits.at(i) ? Py_True : Py_False);
    case TypeKind::integer: return owned(PyLong_FromLongLong(node_->data.signed_at(i)));
    case TypeKind::bigint: return bigint(i);
    case TypeKind::real: return owned(PyFloat_FromDouble(node_->real(i)));
    case TypeKind::number: return owned(number(i));
    case TypeKind::text: return text(i);
    case TypeKind::bytes: {
      const auto bytes = charged_text(i);
      return owned(PyBytes_FromStringAndSize(bytes.data(), static_cast<Py_ssize_t>(bytes.size())));
    }
    case TypeKind::list:
    case TypeKind::tuple: return sequence(i);
    case TypeKind::fixed: return fixed(i);
    case TypeKind::record: return record(i);
    case TypeKind::map: return map(i);
    case TypeKind::array: return array(i);
    case TypeKind::extension: return extension(i);
    case TypeKind::choice: break;
  }
  const auto [child, at] = node_->chosen(i);
  const Decoder& chosen = children_[static_cast<std::size_t>(child - node_->children.data())];
  budget_in_use->charge(chosen.cost_, 1, *node_);
  return chosen.value(at);
}

PyObject* Decoder::number(std::uint64_t i) const {
  const double value = node_->real(i);
  if (!node_->bits.at(i)) return PyFloat_FromDouble(value);
  if (!std::isfinite(value))
    reject(FormatError::malformed, "'" + node_->path() + "': value " + std::to_string(i) +
                                       " is marked as an integer, but is NaN or infinite: the file is damaged");
  return PyLong_FromDouble(value);
}

nb::object Decoder::text(std::uint64_t i) const {
  const auto utf8 = charged_text(i);
  PyObject* object = PyUnicode_DecodeUTF8(utf8.data(), static_cast<Py_ssize_t>(utf8.size()), nullptr);
  if (object != nullptr) return nb::steal(object);
  if (PyErr_ExceptionMatches(PyExc_UnicodeDecodeError) == 0) throw nb::python_error();
  PyErr_Clear();
  reject(FormatError::malformed,
         "'" + node_->path() + "': value " + std::to_string(i) + " is not UTF-8: the file is damaged");
}

nb::object Decoder::bigint(std::uint64_t i) const {
  const auto bytes = charged_text(i);
  const nb::handle type(reinterpret_cast<PyObject*>(&PyLong_Type));  // NOLINT: CPython's own inheritance
  return type.attr("from_bytes")(nb::bytes(bytes.data(), bytes.size()), "little", nb::arg("signed") = true);
}

// Lists hold mostly numbers: a loop for each kind of number, without a check of the kind for each item.
template <class Store>
void Decoder::items(Node::Range range, const Store& store) const {
  const bool plain = node_->validity.first == nullptr;
  for (std::uint64_t at = range.begin; at < range.end;) {
    const std::uint64_t end = std::min(range.end, at + between_signals);
    if (plain && node_->kind == TypeKind::real)
      for (; at < end; ++at) store(at - range.begin, PyFloat_FromDouble(node_->real(at)));
    else if (plain && node_->kind == TypeKind::number)
      for (; at < end; ++at) store(at - range.begin, number(at));
    else if (plain && node_->kind == TypeKind::integer)
      for (; at < end; ++at) store(at - range.begin, PyLong_FromLongLong(node_->data.signed_at(at)));
    else
      for (; at < end; ++at) store(at - range.begin, value(at).release().ptr());
    if (at < range.end) check_signals();
  }
}

// The range of items of value i, subtracted from the budget before anything is made of them.
Node::Range Decoder::charged_range(std::uint64_t i) const {
  const auto range = node_->range(i);
  for (const Decoder& child : children_) budget_in_use->charge(child.cost_, range.size(), *node_);
  return range;
}

// A list, or a tuple.
nb::object Decoder::sequence(std::uint64_t i) const {
  const auto range = charged_range(i);
  const bool is_list = node_->kind == TypeKind::list;
  const auto size = static_cast<Py_ssize_t>(range.size());
  const nb::object made = owned(is_list ? PyList_New(size) : PyTuple_New(size));
  children_[0].items(range, [&](std::uint64_t at, PyObject* item) {
    if (item == nullptr) throw nb::python_error();
    if (is_list)
      PyList_SET_ITEM(made.ptr(), static_cast<Py_ssize_t>(at), item);
    else
      PyTuple_SET_ITEM(made.ptr(), static_cast<Py_ssize_t>(at), item);
  });
  return made;
}

nb::object Decoder::fixed(std::uint64_t i) const {
  records::prefetch(*node_, i);
  const nb::object tuple = owned(PyTuple_New(static_cast<Py_ssize_t>(children_.size())));
  for (std::size_t position = 0; position < children_.size(); ++position)
    PyTuple_SET_ITEM(tuple.ptr(), static_cast<Py_ssize_t>(position), children_[position].value(i).release().ptr());
  return tuple;
}

nb::object Decoder::record(std::uint64_t i) const {
  records::prefetch(*node_, i);
  const auto& fields = node_->fields(i);
  nb::object dict =
      owned(PyDict_Copy(templates_[static_cast<std::size_t>(&fields - node_->type->shapes.data())].ptr()));
  for (const std::uint32_t field : fields)
    if (PyDict_SetItem(dict.ptr(), names_[field].ptr(), children_[field].value(i).ptr()) != 0) throw nb::python_error();
  return dict;
}

nb::object Decoder::map(std::uint64_t i) const {
  const auto range = charged_range(i);
  nb::object dict = owned(PyDict_New());
  KeyHashes hashes;
  for (std::uint64_t at = range.begin; at < range.end; ++at) {
    const nb::object key = children_[0].value(at);
    if (!hashes.count(key.ptr()))
      reject(FormatError::too_costly, "'", children_[0].node().path(), "': a dict has more than ", KeyHashes::most,
             " keys with the same hash");
    if (PyDict_SetItem(dict.ptr(), key.ptr(), children_[1].value(at).ptr()) != 0) {
      if (PyErr_ExceptionMatches(PyExc_TypeError) == 0) throw nb::python_error();
      PyErr_Clear();
      reject(FormatError::malformed, "'" + node_->path() + "': value " + std::to_string(i) +
                                         " has a key that cannot be hashed: the file is damaged");
    }
    if ((at - range.begin) % between_signals == between_signals - 1) check_signals();
  }
  return dict;
}

nb::object Decoder::dtype() const {
  const bool array = node_->kind == TypeKind::array;
  const std::size_t size = array ? node_->type->item_size : node_->data.width;
  nb::object dtype = nb::module_::import_("numpy").attr("dtype")(array ? node_->type->name.c_str() : dtype_of(*node_));
  // Only the spelling that is written: others hide text, such as '=U3' or a structured type with a field of it.
  const bool is_spelled = !array || nb::cast<std::string>(dtype.attr("str")) == node_->type->name;
  if (!is_spelled || nb::cast<std::size_t>(dtype.attr("itemsize")) != size || nb::cast<bool>(dtype.attr("hasobject")))
    reject(FormatError::inconsistent, "'" + node_->path() + "': items have " + std::to_string(size) +
                                          " bytes, which does not match the dtype " +
                                          nb::cast<std::string>(nb::str(dtype)) + ": the file is damaged");
  return dtype;
}

nb::object Decoder::view(std::uint64_t begin, std::uint64_t end) const {
  if (!column_.is_valid()) {
    const nb::object numbers = dtype();
    const std::uint64_t count = node_->kind == TypeKind::array ? node_->items : node_->length;
    const Bytes bytes(node_->data.first, count * nb::cast<std::size_t>(numbers.attr("itemsize")));
    const View memory{source_->mapping, bytes, source_->token};
    column_ = nb::module_::import_("numpy").attr("ndarray")(nb::make_tuple(count), numbers, memoryview_of(memory));
  }
  const nb::object first = owned(PyLong_FromUnsignedLongLong(begin));
  const nb::object last = owned(PyLong_FromUnsignedLongLong(end));
  const nb::object slice = owned(PySlice_New(first.ptr(), last.ptr(), nullptr));
  return owned(PyObject_GetItem(column_.ptr(), slice.ptr()));
}

// numpy converts items of '<U7' and '>U7' to str when they are accessed, and accepts any number as a code point.
void Decoder::expect_characters(Node::Range range) const {
  const bool swapped = node_->type->name.starts_with(">U");
  if (!swapped && !node_->type->name.starts_with("<U")) return;
  const std::uint64_t size = node_->type->item_size;
  const Bytes bytes(node_->data.first + range.begin * size, (range.end - range.begin) * size);
  for (std::uint64_t at = 0; at + sizeof(std::uint32_t) <= bytes.size(); at += sizeof(std::uint32_t)) {
    std::uint32_t character;  // NOLINT(cppcoreguidelines-init-variables): filled at once
    std::memcpy(&character, bytes.data() + at, sizeof character);
    if (swapped) character = __builtin_bswap32(character);
    if (character > 0x10FFFF)
      reject(FormatError::malformed,
             "'" + node_->path() + "': an array of text contains an invalid character: the file is damaged");
  }
}

nb::object Decoder::array_view(std::uint64_t i, Node::Range range) const {
  nb::object items = view(range.begin, range.end);
  expect_characters(range);
  const std::uint64_t length = range.end - range.begin;
  const auto damaged = [&](const std::string& of) {
    return FormatError(FormatError::malformed, "'" + node_->path() + "': value " + std::to_string(i) + " is " + of +
                                                   ", but has " + std::to_string(length) +
                                                   " items: the file is damaged");
  };
  if (node_->type->scalar) {
    if (length != 1) throw damaged("a scalar");
    return items[0];
  }
  if (node_->type->ndim == 1) return items;
  nb::list shape;
  const std::uint64_t item_size = std::max<std::uint64_t>(node_->type->item_size, 1);
  std::uint64_t product = item_size;  // in bytes, of the extents that are not 0
  bool fits = true;
  bool empty = false;
  for (std::uint32_t axis = 0; axis < node_->type->ndim; ++axis) {
    const std::uint64_t extent = node_->shape.unsigned_at(i * node_->type->ndim + axis);
    const std::uint64_t factor = std::max<std::uint64_t>(extent, 1);
    fits = fits && factor < most_bytes / product;
    product = fits ? product * factor : product;
    empty = empty || extent == 0;
    shape.append(extent);
  }
  const nb::tuple extents(shape);
  if (!fits || (empty ? 0 : product) != length * item_size)
    throw damaged("of shape " + nb::cast<std::string>(nb::str(extents)));
  return items.attr("reshape")(extents);
}

nb::object Decoder::array(std::uint64_t i) const {
  const auto range = node_->range(i);
  budget_in_use->charge_bytes(range.size() * node_->type->item_size, *node_);
  const nb::object shared = array_view(i, range);
  return node_->type->scalar ? shared : shared.attr("copy")();
}

nb::object Decoder::extension(std::uint64_t i) const {
  if (!make_.is_valid()) {
    nb::list kinds;
    add_kinds(children_[0].node(), kinds);
    make_ = source_->resolve(node_->type->name, nb::tuple(kinds));
  }
  const nb::object plain = children_[0].value(i);
  try {
    return in_python([&] { return make_(plain); });
  } catch (nb::python_error& error) {
    fail_to_make(error);
  }
}

// The value in the file is invalid for its type: raises FormatError with the original exception as its cause. Errors of
// the machine and interrupts are re-raised.
void Decoder::fail_to_make(nb::python_error& error) const {
  const nb::object format_error = error_class("FormatError");
  if (!error.matches(PyExc_Exception) || error.matches(format_error) || error.matches(PyExc_MemoryError) ||
      error.matches(PyExc_RecursionError))
    throw;  // what is being handled
  const nb::object value = format_error(
      text_of("'" + node_->path() + "': the file contains an invalid value of type '" + node_->type->name + "': ") +
      nb::str(error.value()));
  value.attr("__cause__") = error.value();
  PyErr_SetObject(format_error.ptr(), value.ptr());
  throw nb::python_error();
}

}  // namespace onecopy::bindings
