// Rows of a records file, or some of them in any order: the implementation of the Python class List.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_set>
#include <vector>

#include "records/decoder.hpp"

namespace onecopy::bindings {

// An opened file. Shared by all rows of it, and by all lazy objects made from them.
struct RecordSource {
  static constexpr bool holds_python = true;

  explicit RecordSource(records::RecordFile opened, nb::object resolve);

  WithoutGil<records::RecordFile> file;
  ViewCount views;
  Decoder decoder;
  // Nodes that were validated for consumers that trust their input (Arrow). Used with the GIL, which no fork
  // interrupts.
  mutable std::unordered_set<const records::Node*> checked;
};

class Rows {
 public:
  explicit Rows(const Pin<const RecordSource>& source);

  // Some values of a node: start, start + step, ...
  Rows(Pin<const RecordSource> source, const Decoder& decoder, std::int64_t start, std::int64_t step,
       std::uint64_t size);

  std::uint64_t size() const noexcept { return size_; }
  // These throw ValueError when closed.
  Pin<const RecordSource> source() const { return source_.pin(); }
  Pin<const Decoder> decoder() const { return source().part(decoder_); }

  // The position of row `index`, negative from the end. Throws IndexError.
  std::uint64_t at(Py_ssize_t index) const;
  std::uint64_t place(std::uint64_t row) const noexcept {
    return indices_ ? (*indices_)[row] : static_cast<std::uint64_t>(start_ + static_cast<std::int64_t>(row) * step_);
  }

  nb::object value(Py_ssize_t index) const;
  // One of many values with a common budget, which is charged here for what takes no bytes of the file.
  nb::object next(Py_ssize_t index, records::Budget& budget) const;

  Rows slice(std::int64_t start, std::int64_t step, std::uint64_t size) const;  // in rows of this one
  Rows select(const std::vector<std::int64_t>& rows) const;                     // throws IndexError
  Rows field(nb::handle name) const;                                            // of tuples a position; throws KeyError

  void close() {
    source_.close([](const RecordSource& held) { return held.file->arrays().mapping()->path(); });
  }
  bool closed() const noexcept { return source_.closed(); }

  // The pickled form of these rows: (start, step, size), or None beside the positions.
  std::int64_t start() const noexcept { return start_; }
  std::int64_t step() const noexcept { return step_; }
  const Pin<const std::vector<std::uint64_t>>& indices() const noexcept { return indices_; }

 private:
  nb::object decoded(const RecordSource& held, Py_ssize_t index, records::Budget& budget) const;

  Shared<const RecordSource> source_;
  const Decoder* decoder_;  // of the source
  std::int64_t start_ = 0;
  std::int64_t step_ = 1;
  std::uint64_t size_ = 0;
  Pin<const std::vector<std::uint64_t>> indices_;  // positions; none: start and step define them
};

// A place in the data that is decoded only when it is accessed (lazy.cpp): the result of `rows.lazy[i]`. Numbers, text
// and None are returned as values, lists of numbers and arrays as read-only views of the mapping.
nb::object lazy_value(const Pin<const RecordSource>& source, const Decoder& decoder, std::uint64_t i);

void bind_lazy(const nb::module_& module);
void bind_dict(const nb::module_& module);

}  // namespace onecopy::bindings
