// Rows of Python-like values, streamed into a records file: some MB of memory however many rows there are.
//
//     Builder builder({.spool = "/var/tmp"});
//     for (const Row& row : rows) append(builder.rows(), row);   // see column.hpp
//     builder.save("rows.oc");
//
// What is appended goes to an unnamed spool file in pieces, because widths and types may change with every row; `save`
// copies it once, in order. In memory are the last 64 KiB of each buffer of each column, and as little as it takes of
// short ones: there is no spool file for a few rows. One thread at a time.
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
  std::filesystem::path spool;     // the folder of the spool file: on a disk, and not in memory
  std::string container = "list";  // "dict": rows are `fixed` of two, and get a hash index
  std::map<std::string, std::string, std::less<>> metadata;
};

class Builder {
 public:
  explicit Builder(BuilderOptions options);
  Builder(Builder&&) noexcept;
  Builder& operator=(Builder&&) noexcept;
  ~Builder();

  // Appending throws OsError with the folder of the spool where that cannot be written to, or is full.
  Column& rows() & noexcept ONECOPY_LIFETIMEBOUND;
  std::uint64_t bytes() const noexcept;  // appended so far, but for the columns' last ones in memory

  // When all rows are there, atomically in the place of `path`. Throws OsError; FormatError where the rows are of too
  // many types, or too deep, for a schema.
  void save(const std::filesystem::path& path);

  // For any other FileWriter: finish() plans and says how many bytes there will be, write() gives them and commits. No
  // row can be appended after finish().
  std::uint64_t finish();
  void write(FileWriter& file);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace onecopy::records
