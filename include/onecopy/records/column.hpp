// A column that is being built: takes one value after another, of any kind.
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
// No schema is given, and nothing is converted afterwards: a column that gets a second kind of value becomes a choice
// of both, integers have the narrowest width that holds them, and a dict whose keys do not recur is a map. `list`,
// `record`, ... begin a value, which must be ended before the column gets the next one. One thread at a time.
//
// After an exception (the disk is full, a value of a 121st type) the rows contain a part of a value: discard them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "onecopy/base/bytes.hpp"
#include "onecopy/formats/record_schema.hpp"

namespace onecopy::records {

class Alternative;
class ListColumn;
class RecordColumn;
class FixedColumn;
class MapColumn;
class BuildSpace;     // what the columns of a builder share
struct Tensor;        // a buffer of the future file
struct ColumnBuffer;  // a buffer of a column itself: the tags of a choice

struct ArrayValue {
  std::string_view dtype;  // in numpy's spelling
  std::uint32_t item_size = 0;
  std::span<const std::uint64_t> shape;
  Bytes bytes;  // C order
  bool scalar = false;
};

class Column {
 public:
  static constexpr std::size_t most_alternatives = 120;

  // `path` appears in errors.
  Column(BuildSpace& space, std::string path);
  Column(const Column&) = delete;
  Column& operator=(const Column&) = delete;
  ~Column();

  void null() { nulls(1); }
  void nulls(std::uint64_t count);
  void boolean(bool value);
  // Integers and reals share an alternative as long as reals hold the integers exactly (2^53 in magnitude).
  void integer(std::int64_t value);
  void bigint(Bytes little_endian);  // two's complement; for integers that exceed 64 bits
  void real(double value);           // exactly: the sign of zero and the payload of NaN are kept
  void text(std::string_view utf8);
  void bytes(Bytes value);
  void array(const ArrayValue& value);  // throws FormatError where bytes and shape do not agree
  ListColumn& list();
  ListColumn& tuple();                       // of any length
  FixedColumn& fixed(std::size_t length);    // a tuple of few values, each place with a type of its own
  RecordColumn& record();                    // a dict whose keys are text
  MapColumn& map();                          // any other dict
  Column& extension(std::string_view name);  // returns the column of the plain value; add one value

  // Whether a dict with these keys (each once) becomes a record. Not if it would add too many fields (over 1,024, or
  // over 64 that the first 64 dicts did not have) or too many orders of them (over 65,536), or if the types of all
  // rows would need over 96 MB of the header: such keys are data, and the dict is a map, whatever came before.
  bool fits_record(std::span<const std::string_view> keys) const;

  std::uint64_t length() const noexcept { return length_; }  // values

  // Builds the node of this column; its buffers are appended to `tensors`, which refer to this column from then on.
  Type finish(const std::string& path, std::vector<Tensor>& tensors);

 private:
  friend class RecordValues;
  template <class T, class Takes, class... Arguments>
  T& alternative(TypeKind kind, const Takes& takes, const Arguments&... arguments);
  void add(std::unique_ptr<Alternative> alternative);
  // Its share of the header, in bytes; throws FormatError if that is too large.
  void charge(std::uint64_t bytes);
  std::uint64_t bytes_of_first_null() const noexcept;
  void add_choice_tensors(const std::string& path, std::vector<Tensor>& tensors) const;

  BuildSpace* space_;
  std::string path_;
  std::uint64_t length_ = 0;
  bool has_nulls_ = false;                                  // beside other values
  std::vector<std::unique_ptr<Alternative>> alternatives_;  // none: all values are null
  std::unique_ptr<ColumnBuffer> tags_;                      // the numbers of the alternatives, where there are two
};

// Only this module creates the alternatives of a column.

class ListColumn {
 public:
  Column& items() noexcept;
  void end();

 private:
  friend class ListValues;
  ListColumn() = default;
  ~ListColumn() = default;
};

class FixedColumn {
 public:
  Column& at(std::size_t position) noexcept;
  void end();  // throws FormatError where a place has no value, or two

 private:
  friend class FixedValues;
  FixedColumn() = default;
  ~FixedColumn() = default;
};

class RecordColumn {
 public:
  // Keys in their order; throws FormatError for one that was given before. Expects the keys of the previous dict: each
  // of these costs one comparison.
  Column& field(std::string_view key);
  void end();  // fields without a value are absent: null in their column, and not in this dict's shape

 private:
  friend class RecordValues;
  RecordColumn() = default;
  ~RecordColumn() = default;
};

class MapColumn {
 public:
  Column& keys() noexcept;
  Column& values() noexcept;
  void end();  // throws FormatError where there are not as many values as keys

 private:
  friend class MapValues;
  MapColumn() = default;
  ~MapColumn() = default;
};

}  // namespace onecopy::records
