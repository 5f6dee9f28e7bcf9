// Imports JSON text directly into rows: no tree, no copy of the text; values equal those of Python's json.loads.
//
//     const auto text = Mapping::open("instances.json");
//     import_json(text.bytes(), builder.rows(), {.path = {"annotations"}});
//
// The text is parsed in place, best from a mapped file: the import needs memory for the columns, and 16 bytes for each
// value in the largest object of a row. Strict (RFC 8259 in UTF-8; NaN, Infinity and -Infinity as in json.loads), to
// the end of the text, also inside skipped members. If an object repeats a key, the last value is used.
//
// Unlike json.loads, it refuses half a surrogate pair, which UTF-8 cannot express, and nesting deeper than 60; like
// json.loads of a str, it refuses a byte order mark. The text is not needed afterwards. Threads: one at a time, as for
// Column.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "onecopy/base/bytes.hpp"
#include "onecopy/records/column.hpp"

namespace onecopy::records {

struct JsonOptions {
  std::vector<std::string> path;  // member names, from the whole text to the value with the rows
  bool lines = false;             // every line is a row, except empty ones; requires an empty path
  bool pairs = false;             // the value is an object, and its members are the rows: `fixed`, key and value

  // Called about 20 times a second with the progress: rows, and bytes of the text. May throw.
  std::function<void(std::uint64_t rows, std::uint64_t bytes)> progress;
};

// Appends the rows and returns their number. Throws FormatError with byte, line and column, and the path of the value,
// and the errors of the columns. After an exception `rows` contain a part of a value: discard them.
std::uint64_t import_json(Bytes text, Column& rows, const JsonOptions& options = {});

}  // namespace onecopy::records
