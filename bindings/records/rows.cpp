#include "records/rows.hpp"

#include <algorithm>
#include <utility>

#include "onecopy/records/arrow.hpp"

namespace onecopy::bindings {

RecordSource::RecordSource(records::RecordFile opened, nb::object resolve)
    : file(std::move(opened)),
      decoder(file->rows(), std::make_shared<const Source>(Source{Shared<const Mapping>(file->arrays().mapping()).pin(),
                                                                  views.token(), std::move(resolve),
                                                                  file->arrays().mapping()->bytes().size()})) {}

Rows::Rows(const Pin<const RecordSource>& source)
    : source_(source), decoder_(&source->decoder), size_(decoder_->node().length) {}

namespace {

// Whether start, start + step, ... are `size` positions below `length`. Any Python code may make a handle or a slice:
// no product of its numbers is computed that could wrap.
bool are_inside(std::int64_t start, std::int64_t step, std::uint64_t size, std::uint64_t length) noexcept {
  const auto inside = [length](std::int64_t place) { return place >= 0 && std::cmp_less(place, length); };
  std::int64_t last = 0;
  const bool wraps = size > INT64_MAX || __builtin_mul_overflow(static_cast<std::int64_t>(size - 1), step, &last) ||
                     __builtin_add_overflow(start, last, &last);
  return size == 0 || (!wraps && inside(start) && inside(last));
}

}  // namespace

Rows::Rows(Pin<const RecordSource> source, const Decoder& decoder, std::int64_t start, std::int64_t step,
           std::uint64_t size)
    : source_(std::move(source)), decoder_(&decoder), start_(start), step_(step), size_(size) {
  if (!are_inside(start, step, size, decoder.node().length)) throw nb::value_error("the rows extend beyond the file");
}

std::uint64_t Rows::at(Py_ssize_t index) const {
  const auto size = static_cast<Py_ssize_t>(size_);
  const Py_ssize_t row = index < 0 ? index + size : index;
  if (row < 0 || row >= size) throw nb::index_error("list index out of range");
  return place(static_cast<std::uint64_t>(row));
}

// One Pin a call: it is an atomic increment, and decoding a small row takes 200 ns.
nb::object Rows::value(Py_ssize_t index) const {
  const auto held = source();
  records::Budget budget(decoder_->file_bytes());
  return decoded(*held, index, budget);
}

nb::object Rows::next(Py_ssize_t index, records::Budget& budget) const {
  const auto held = source();
  if (decoder_->cost().bits == 0) budget.charge(decoder_->cost(), 1, decoder_->node());
  return decoded(*held, index, budget);
}

// `held` is pinned by the caller: user code makes objects of registered types, and may close these rows.
nb::object Rows::decoded(const RecordSource& held, Py_ssize_t index, records::Budget& budget) const {
  nb::object value = decoder_->decode(at(index), budget);
  expect_whole(*held.file->arrays().mapping());  // bytes of lost pages read as zeros
  return value;
}

Rows Rows::slice(std::int64_t start, std::int64_t step, std::uint64_t size) const {
  if (!are_inside(start, step, size, size_)) throw nb::value_error("the slice extends beyond the rows");
  Rows rows = *this;
  rows.size_ = size;
  if (indices_) {
    std::vector<std::uint64_t> places(size);
    for (std::uint64_t i = 0; i < size; ++i)
      places[i] = (*indices_)[static_cast<std::size_t>(start + static_cast<std::int64_t>(i) * step)];
    rows.indices_ = std::make_shared<const std::vector<std::uint64_t>>(std::move(places));
  } else if (size > 0) {
    rows.start_ = start_ + start * step_;
    rows.step_ = size == 1 ? 1 : step_ * step;
  }
  return rows;
}

Rows Rows::select(const std::vector<std::int64_t>& wanted) const {
  Rows rows = *this;
  std::vector<std::uint64_t> places;
  places.reserve(wanted.size());
  for (const std::int64_t row : wanted) places.push_back(at(row));
  rows.size_ = places.size();
  rows.indices_ = std::make_shared<const std::vector<std::uint64_t>>(std::move(places));
  return rows;
}

Rows Rows::field(nb::handle name) const {
  const auto all = decoder();
  std::ptrdiff_t field = -1;
  if (all->node().kind == records::TypeKind::fixed && PyLong_Check(name.ptr()) != 0) {
    field = PyLong_AsSsize_t(name.ptr());
    if (field == -1) PyErr_Clear();  // beyond 64 bits: no field either
    if (static_cast<std::size_t>(field) >= all->node().children.size()) field = -1;
  } else if (PyUnicode_Check(name.ptr()) != 0) {
    field = all->find(name);
  }
  if (field < 0) {
    PyErr_SetObject(PyExc_KeyError, name.ptr());
    throw nb::python_error();
  }
  Rows rows = *this;
  rows.decoder_ = &all->child(static_cast<std::size_t>(field));
  return rows;
}

}  // namespace onecopy::bindings
