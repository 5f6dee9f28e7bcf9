// A place in the data while it is being built: takes one value after another, of whatever kind they are.
//
//     Column& rows = builder.rows();
//     RecordColumn& row = rows.record();          // {"id": 7, "box": [1.5, 2]}
//     row.field("id").integer(7);
//     ListColumn& box = row.field("box").list();
//     box.items().real(1.5);
//     box.items().integer(2);
//     box.end();
//     row.end();
//
// Nothing is known beforehand and nothing is converted afterwards: a column that gets a second kind of value becomes a
// choice of both, integers are kept as narrow as they are, and a dict whose keys do not recur is a map. What `list`,
// `record`, ... give begins a value, which must be ended before the column gets the next one. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "onecopy/base/bytes.hpp"
#include "onecopy/formats/record_schema.hpp"

namespace onecopy::records {

class Spool;
class Alternative;
class ListColumn;
class RecordColumn;
class FixedColumn;
class MapColumn;
struct Tensor;  // a buffer of the file to be: its spec, and what writes it

struct ArrayValue {
  std::string_view dtype;  // as numpy spells it
  std::uint32_t item_size = 0;
  std::vector<std::uint64_t> shape;
  Bytes bytes;  // C order
  bool scalar = false;
};

class Column {
 public:
  explicit Column(Spool& spool);
  Column(const Column&) = delete;
  Column& operator=(const Column&) = delete;
  ~Column();

  void null();
  void boolean(bool value);
  void integer(std::int64_t value);
  void bigint(Bytes little_endian);  // two's complement; for what does not fit 64 bits
  void real(double value);
  void text(std::string_view utf8);
  void bytes(Bytes value);
  void array(const ArrayValue& value);
  ListColumn& list();
  ListColumn& tuple();                       // of any length
  FixedColumn& fixed(std::size_t length);    // a tuple of few values, each place with a type of its own
  RecordColumn& record();                    // a dict whose keys are text: see RecordColumn::fits
  MapColumn& map();                          // any other dict
  Column& extension(std::string_view name);  // gives the column of the plain value that stands for the object

  std::uint64_t length() const noexcept;  // values

  // The node this has become; its buffers are appended to `tensors`.
  Type finish(const std::string& path, std::vector<Tensor>& tensors);
};

class ListColumn {
 public:
  Column& items() noexcept;
  void end();
};

class FixedColumn {
 public:
  Column& at(std::size_t position) noexcept;
  void end();
};

class RecordColumn {
 public:
  // Of a dict that is not begun yet: false when it would bring in too many fields (over 1,024, and over 64 that the
  // first rows did not have) or too many different orders (over 65,536): then it goes to `map`, whatever came before.
  bool fits(const std::vector<std::string_view>& keys);
  // Keys in their order, each once. Guesses that rows are alike: one comparison where they are.
  Column& field(std::string_view key);
  void end();  // fields that were not given are absent: null in their column, and not in this row's shape
};

class MapColumn {
 public:
  Column& keys() noexcept;
  Column& values() noexcept;
  void end();
};

}  // namespace onecopy::records
