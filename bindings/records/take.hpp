// Columns of a batch of rows as numpy arrays, each filled in one go with the GIL released.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "records/rows.hpp"

namespace onecopy::bindings {

// Row numbers as Python gives them: a buffer of int64, negative ones from the end. Throws IndexError, TypeError.
std::vector<std::uint64_t> places_of(const Rows& rows, nb::handle indices);

// The form of a column: numbers an array, lists of numbers `ragged(values, offsets)`, a record a dict of columns, and
// everything else a list of Python values. `wrap`: called with every array; None: they stay numpy's.
struct ColumnForm {
  nb::handle ragged;
  nb::handle wrap;
};

// The named fields, or all, of the rows at `indices`.
nb::dict take_columns(const Rows& rows, nb::handle indices, nb::handle columns, const ColumnForm& form);

// The rows as Python values; the memory of the next rows is prefetched while one is decoded.
nb::list take_rows(const Rows& rows, nb::handle indices);

}  // namespace onecopy::bindings
