// JSON text straight into rows: no tree, and no copy of the text; values are what Python's json.loads gives.
//
//     const auto text = Mapping::open("instances.json");
//     import_json(text.bytes(), builder.rows(), {.path = {"annotations"}});
//
// The text is looked at in place, best as pages of a file: of memory this takes what the columns do, and 16 bytes for
// each value in the largest object of a row. Strict (RFC 8259 in UTF-8; NaN, Infinity and -Infinity as json.loads takes
// them), to the end of the text, also where members are skipped. A key that an object has twice has its last value.
//
// Refused, though json.loads would not: half a surrogate pair, which UTF-8 cannot express; what is nested deeper than
// 60; a byte order mark (as json.loads does with str).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "onecopy/base/bytes.hpp"
#include "onecopy/records/column.hpp"

namespace onecopy::records {

struct JsonOptions {
  std::vector<std::string> path;  // of members, from the whole text to the value with the rows
  bool lines = false;             // every line is a row, but for empty ones; there is no path then
  bool pairs = false;             // the value is an object, and its members are the rows: `fixed`, key and value

  // Called about 20 times a second, with what is done: rows, and bytes of the text. May throw.
  std::function<void(std::uint64_t rows, std::uint64_t bytes)> progress;
};

// Appends the rows and says how many. Throws FormatError with byte, line and column, and the path of the value; and
// what the columns throw. After an exception `rows` hold a part of a value: throw them away.
std::uint64_t import_json(Bytes text, Column& rows, const JsonOptions& options = {});

}  // namespace onecopy::records
