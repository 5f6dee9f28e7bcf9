// Rows of Python-like values, streamed into a records file: some MB of memory however many rows there are.
//
//     Builder builder({.spool = "/var/tmp"});
//     for (const Row& row : rows) append(builder.rows(), row);   // see column.hpp
//     builder.save("rows.oc");
//
// Appended values go to an unnamed spool file in pieces, because widths and types may change with every row; `save`
// copies it once, in order. Memory holds the last 64 KiB of each buffer of each column, and less for short ones: a few
// rows need no spool file. One thread at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "onecopy/base/bytes.hpp"
#include "onecopy/files/file_writer.hpp"
#include "onecopy/records/column.hpp"

namespace onecopy::records {

struct BuilderOptions {
  std::filesystem::path spool;     // the folder of the spool file; empty: it is in memory
  std::string container = "list";  // "dict": rows are `fixed` of two, and get a hash index
  std::map<std::string, std::string, std::less<>> metadata;
};

class Builder {
 public:
  explicit Builder(BuilderOptions options);
  Builder(Builder&&) noexcept;
  Builder& operator=(Builder&&) noexcept;
  ~Builder();

  // Appending throws OsError with the folder of the spool file if it cannot be written or its disk is full.
  Column& rows() & noexcept ONECOPY_LIFETIMEBOUND;
  std::uint64_t bytes() const noexcept;  // appended so far, without the columns' last values in memory

  // After the last row: writes the file atomically at `path`. Throws OsError; FormatError if the rows have too many
  // types, or are nested too deep, for a schema.
  void save(const std::filesystem::path& path);

  // For any other FileWriter: finish() plans the file and returns its size in bytes, write() writes it and commits. No
  // row can be appended after finish().
  std::uint64_t finish();
  void write(FileWriter& file);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace onecopy::records
