// Rows as Arrow arrays, passed to other libraries through Arrow's C data interface, and rows from such arrays.
//
// Exported arrays point into the file: no byte is copied, and the mapping lives until the last array is released, on
// any thread. Arrow's consumers trust their input, so `check` first validates everything that refers from one buffer
// into another. https://arrow.apache.org/docs/format/CDataInterface.html
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "onecopy/records/column.hpp"
#include "onecopy/records/node.hpp"

// The layout and the include guards that the specification prescribes: other libraries define the structs too.
#ifndef ARROW_C_DATA_INTERFACE
#define ARROW_C_DATA_INTERFACE
extern "C" {
struct ArrowSchema {
  const char* format;
  const char* name;
  const char* metadata;
  std::int64_t flags;
  std::int64_t n_children;
  ArrowSchema** children;
  ArrowSchema* dictionary;
  void (*release)(ArrowSchema*);
  void* private_data;
};
struct ArrowArray {
  std::int64_t length;
  std::int64_t null_count;
  std::int64_t offset;
  std::int64_t n_buffers;
  std::int64_t n_children;
  const void** buffers;
  ArrowArray** children;
  ArrowArray* dictionary;
  void (*release)(ArrowArray*);
  void* private_data;
};
}
#endif
#ifndef ARROW_C_STREAM_INTERFACE
#define ARROW_C_STREAM_INTERFACE
extern "C" {
struct ArrowArrayStream {
  int (*get_schema)(ArrowArrayStream*, ArrowSchema* out);
  int (*get_next)(ArrowArrayStream*, ArrowArray* out);
  const char* (*get_last_error)(ArrowArrayStream*);
  void (*release)(ArrowArrayStream*);
  void* private_data;
};
}
#endif

namespace onecopy::records {

// Validates every offset, tag and text of a node and its children. Throws FormatError at the first that is damaged.
void check(const Node& node);

// Whether all numbers are aligned to their size, as Arrow's consumers expect. Those of onecopy's writer are.
bool is_aligned(const Node& node) noexcept;

// The schema of a node, independent of the file afterwards. Throws FormatError for types that Arrow cannot express: a
// choice with 64-bit offsets.
void export_schema(const Node& node, ArrowSchema& out);

// Values [start, start + length). `owner` keeps node and buffers.
void export_array(const Node& node, std::uint64_t start, std::uint64_t length, const std::shared_ptr<const void>& owner,
                  ArrowArray& out);

// A stream of one batch with these values. `node` is a record.
void export_stream(const Node& node, std::uint64_t start, std::uint64_t length, std::shared_ptr<const void> owner,
                   ArrowArrayStream& out);

// Appends every row of a stream of structs (a table) to `rows`, as records, batch by batch; returns how many. `each` is
// called after each batch, and may throw. Throws FormatError: a type that records do not have, with its column; an
// error of the stream itself. The caller must release the stream.
std::uint64_t import_stream(ArrowArrayStream& stream, Column& rows, const std::function<void()>& each);

}  // namespace onecopy::records
