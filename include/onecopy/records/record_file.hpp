// records: Python-like data (lists, dicts, tables of any values) in a file, read in place.
//
//     const auto file = RecordFile::open("rows.oc");
//     const Node& rows = file.rows();                     // kind record, with a child per field
//     const std::int64_t id = rows.children[0].data.signed_at(7);
//
// Opening reads the header and touches no data. A copy shares everything; a Node lives as long as any copy. Threads:
// any. Building is in builder.hpp.
#pragma once

#include <filesystem>
#include <memory>

#include "onecopy/arrays/array_file.hpp"
#include "onecopy/records/node.hpp"

namespace onecopy::records {

class RecordFile {
 public:
  // Throws OsError; FormatError with the path: not a records file, or its buffers do not match its schema.
  static RecordFile open(const std::filesystem::path& path, const MappingOptions& options = {});
  static RecordFile of(ArrayFile file);

  const RecordSchema& schema() const& noexcept ONECOPY_LIFETIMEBOUND { return state_->schema; }
  const RecordSchema& schema() const&& = delete;
  const Node& rows() const& noexcept ONECOPY_LIFETIMEBOUND { return state_->rows; }
  const Node& rows() const&& = delete;
  const ArrayFile& arrays() const& noexcept ONECOPY_LIFETIMEBOUND { return state_->arrays; }
  const ArrayFile& arrays() const&& = delete;

  std::uint64_t payload() const noexcept;  // bytes of all buffers of the rows

 private:
  struct State {
    ArrayFile arrays;
    RecordSchema schema;
    Node rows;
  };
  explicit RecordFile(std::shared_ptr<const State> state) : state_(std::move(state)) {}

  std::shared_ptr<const State> state_;
};

}  // namespace onecopy::records
