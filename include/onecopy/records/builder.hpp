// Rows of Python-like values, streamed into a records file: some MB of memory however many rows there are.
//
//     Builder builder({.spool = "/var/tmp"});
//     for (const Row& row : rows) append(builder.rows(), row);   // see column.hpp
//     builder.save("rows.oc");
//
// What is appended goes to an unnamed spool file in pieces, because widths and types may change with every row; `save`
// copies it once, in order. One thread at a time.
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
  explicit Builder(BuilderOptions options);  // throws OsError where the folder cannot be written to
  Builder(Builder&&) noexcept;
  Builder& operator=(Builder&&) noexcept;
  ~Builder();

  Column& rows() & noexcept ONECOPY_LIFETIMEBOUND;
  std::uint64_t bytes() const noexcept;  // appended so far, roughly

  // The last call. Atomically in the place of `path`, or into a memory file: `file_size` bytes, known after `finish`.
  void save(const std::filesystem::path& path);

  // For any other FileWriter: finish() plans and says how many bytes there will be, write() then gives them.
  std::uint64_t finish();
  void write(FileWriter& file);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace onecopy::records
