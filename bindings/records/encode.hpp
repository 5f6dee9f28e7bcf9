// Encodes a Python value into a column. One of the two places where a binding loops over data (the other is
// decoder.hpp): most of the time is spent in reading Python objects, which only CPython's API can do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "bindings.hpp"
#include "onecopy/records/column.hpp"
#include "records/check.hpp"
#include "records/numpy_types.hpp"

namespace onecopy::bindings {

class Encoder {
 public:
  Encoder(nb::handle registry, NumpyTypes& numpy) : numpy_(numpy), checker_(registry, numpy) {}

  // Throws what Checker throws, and then nothing was added.
  void check(PyObject* row, Py_ssize_t number, bool of_dict) { checker_.check_row(row, number, of_dict); }

  // Adds the row that was checked last. Throws FormatError, OsError, MemoryError; then the row may be added in part.
  void add(records::Column& column, PyObject* row);

 private:
  void encode(records::Column& column, PyObject* value);
  void integer(records::Column& column, PyObject* value);
  void text(records::Column& column, PyObject* value);
  void list(records::Column& column, PyObject* value);
  void tuple(records::Column& column, PyObject* value);
  void dict(records::Column& column, PyObject* value);
  void record(records::Column& column, PyObject* value);
  void map(records::Column& column, PyObject* value);
  void other(records::Column& column, PyObject* value);
  void array(records::Column& column, PyObject* value, bool scalar);
  bool is_text_keyed(PyObject* dict);  // then the keys are in keys_

  NumpyTypes& numpy_;
  Checker checker_;
  std::size_t next_stand_in_ = 0;
  int depth_ = 0;
  std::vector<std::string_view> keys_;  // of the current dict
  std::vector<std::uint64_t> shape_;
};

}  // namespace onecopy::bindings
