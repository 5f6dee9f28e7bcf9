// The types of the rows of a records file: a tree, stored in the file's metadata.
//
// Every place in the data has a node: the rows themselves, each field of a dict, the items of a list. A node's values
// lie in buffers in Arrow's memory layout, one tensor of the file each, and the names of those tensors follow from the
// tree (`buffer_name`). docs/formats/records.md is the specification. A RecordSchema is a value. Pure functions: any
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "onecopy/base/bytes.hpp"

namespace onecopy::records {

enum class TypeKind : std::uint8_t {
  null,       // None everywhere, or no values at all; no buffers
  boolean,    // data: bits
  integer,    // data: I8, I16, I32 or I64, the narrowest that holds the column
  bigint,     // offsets, data: two's complement, little endian, any length
  real,       // data: F64
  number,     // data: F64; ints: bits, 1 where the value was an int (below 2^53 in magnitude)
  text,       // offsets, data: UTF-8
  bytes,      // offsets, data
  list,       // offsets; child: the items
  tuple,      // the same, of any length
  fixed,      // a tuple of as many values as there are children
  record,     // a dict with str keys; a child per field; shape: U8, U16 or U32, where rows differ in keys or order
  map,        // offsets; children: keys and values of a dict that is not a record
  array,      // offsets (in items), data: U8 in items of `item_size`; shape: U64 [length, ndim] where ndim is not 1
  extension,  // child: the plain value that stands for an object of the type `name`
  choice,     // tag: I8, offsets: I32 or I64 (Arrow's dense union); children: the alternatives
};

std::string_view to_string(TypeKind kind) noexcept;

struct Type {
  TypeKind kind = TypeKind::null;
  std::uint64_t length = 0;     // values
  bool nullable = false;        // there is a buffer `validity`: bits, 1 where there is a value. Never for choice, null
  std::string name;             // extension: of the type. array: the dtype as numpy spells it ("<f4")
  std::uint32_t ndim = 0;       // array
  std::uint32_t item_size = 0;  // array: bytes
  bool scalar = false;          // array: a scalar of numpy, and no array
  std::vector<std::string> fields;  // record: the names of the children
  std::vector<std::vector<std::uint32_t>>
      shapes;  // record: which fields a row has, in its order; one: all rows are alike
  std::vector<Type> children;

  friend bool operator==(const Type&, const Type&) = default;
};

// The schema of a whole records file.
struct RecordSchema {
  static constexpr std::size_t deepest = 128;  // nodes above each other: values 60 deep, each of them of a choice
  static constexpr std::size_t most_nodes = 100000;

  std::string container;  // "list" or "dict": then the rows are `fixed`, key and value
  Type rows;

  friend bool operator==(const RecordSchema&, const RecordSchema&) = default;
};

// JSON: the tree as a list of nodes, each before its children, so that the text of a deep tree is not nested.
std::string write_schema(const RecordSchema& schema);

// `metadata` is onecopy's text in the file; the schema is its member "schema". Throws FormatError: missing, an unknown
// kind, too deep, children or shapes that do not fit the kind, fields of different lengths. Does not compare lengths
// with buffers.
RecordSchema parse_record_schema(std::string_view metadata);

// The name of the tensor with this buffer of the node at `path`: "records.0.bbox.item.data". The path of the rows is
// "records.0".
std::string buffer_name(std::string_view path, std::string_view buffer);

// The path of a child: fields by their names, with '%', '.', '#' and control characters as %XX; else "item", "key",
// "value", "storage", and positions and alternatives by their numbers.
std::string child_path(std::string_view path, const Type& parent, std::size_t child);
std::string child_name(const Type& parent, std::size_t child);  // its last part

}  // namespace onecopy::records
