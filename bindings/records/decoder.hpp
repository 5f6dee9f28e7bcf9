// Decodes a node to Python values: the work of `rows[i]`. One of the two places where a binding loops over data (the
// other is encode.hpp): most of the time is spent in creating Python objects, which only CPython's API can do.
#pragma once

#include <nanobind/stl/string.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "bindings.hpp"
#include "onecopy/records/budget.hpp"
#include "onecopy/records/record_file.hpp"

namespace onecopy::bindings {

// What all decoders of a file share.
struct Source {
  Pin<const Mapping> mapping;
  ViewCount::Token token;
  // resolve(name, kinds) -> a function that makes an object of an extension type from its plain value, which is of one
  // of these kinds.
  nb::object resolve;
  std::uint64_t file_bytes;  // the limit on what is decoded
};

// Python's data for each node that is needed again and again. Made when a file is opened, and lives as long as its
// rows.
class Decoder {
 public:
  Decoder(const records::Node& node, Pin<const Source> source);

  const records::Node& node() const noexcept { return *node_; }
  const Decoder& child(std::size_t i) const noexcept { return children_[i]; }
  nb::handle name(std::size_t field) const noexcept { return names_[field]; }
  std::ptrdiff_t find(nb::handle name) const;  // the number of a field, or -1; `name` is a str

  // Value i as a new object that shares nothing with the file. i < node().length. Throws FormatError, nb::python_error.
  nb::object decode(std::uint64_t i) const;
  nb::object decode(std::uint64_t i, records::Budget& budget) const;  // one of many values with a common budget

  records::Cost cost() const noexcept { return cost_; }
  std::uint64_t file_bytes() const noexcept { return source_->file_bytes; }

  // Numbers without None among them: they have a view.
  bool numeric() const noexcept;
  // numpy's type of the numbers, or of the items of arrays. Throws FormatError if their size disagrees with the file.
  nb::object dtype() const;
  // numpy's read-only view of these numbers, or of the data of arrays; of [begin, end).
  nb::object view(std::uint64_t begin, std::uint64_t end) const;
  // Array i as a read-only view, or a scalar.
  nb::object array_view(std::uint64_t i) const { return array_view(i, node_->range(i)); }

 private:
  nb::object value(std::uint64_t i) const { return node_->null(i) ? nb::none() : known(i); }
  nb::object known(std::uint64_t i) const;  // not null
  std::string_view charged_text(std::uint64_t i) const;
  PyObject* number(std::uint64_t i) const;  // a new reference
  nb::object text(std::uint64_t i) const;
  nb::object bigint(std::uint64_t i) const;
  records::Node::Range charged_range(std::uint64_t i) const;
  template <class Store>
  void items(records::Node::Range range,
             const Store& store) const;  // store(number, new reference, or null after an error)
  nb::object sequence(std::uint64_t i) const;
  nb::object fixed(std::uint64_t i) const;
  nb::object record(std::uint64_t i) const;
  nb::object map(std::uint64_t i) const;
  nb::object array(std::uint64_t i) const;
  nb::object array_view(std::uint64_t i, records::Node::Range range) const;
  void expect_characters(records::Node::Range range) const;
  nb::object extension(std::uint64_t i) const;
  [[noreturn]] void fail_to_make(nb::python_error& error) const;
  void make_templates();

  const records::Node* node_;
  Pin<const Source> source_;
  std::vector<Decoder> children_;
  records::Cost cost_;
  std::vector<nb::object> names_;      // of fields, interned
  std::vector<nb::object> templates_;  // for each shape a dict with its keys: copying it is faster than adding keys
  mutable nb::object make_;            // the result of `resolve`
  mutable nb::object column_;
};

}  // namespace onecopy::bindings
