#include "onecopy/records/record_file.hpp"

#include <utility>

#include "onecopy/base/error.hpp"
#include "records/bind.hpp"

namespace onecopy::records {
namespace {

std::string_view schema_text(const Index& index) {
  if (index.kind() != Kind::records)
    reject(FormatError::not_this_format,
           index.kind() == Kind::foreign
               ? "expected a file of records, found a file from another tool: open its arrays with onecopy.open"
               : "expected a file of records, found a file of kind '" + std::string(to_string(index.kind())) + "'");
  const auto found = index.metadata().find("onecopy");
  return found == index.metadata().end() ? std::string_view() : std::string_view(found->second);
}

std::uint64_t payload_of(const ArrayFile& file) {
  std::uint64_t bytes = 0;
  for (const Entry& entry : file.index().entries())
    if (!file.index().is_filler(entry)) bytes += entry.length;
  return bytes;
}

}  // namespace

RecordFile RecordFile::open(const std::filesystem::path& path, const MappingOptions& options) {
  return of(ArrayFile::open(path, options));
}

RecordFile RecordFile::of(ArrayFile file) {
  const auto state = std::make_shared<State>(State{std::move(file), {}, {}});
  try {
    state->schema = parse_record_schema(schema_text(state->arrays.index()));
    const ArrayFile& arrays = state->arrays;
    const auto find = [&arrays](const std::string& name) -> std::optional<Buffer> {
      const Entry* entry = arrays.index().find(name);
      if (entry == nullptr) return std::nullopt;
      return Buffer{entry->dtype, arrays.bytes(*entry)};
    };
    state->rows = bind_nodes(state->schema.rows, "records.0", find);
  } catch (const FormatError& error) {
    throw error.with_path(state->arrays.mapping()->path());
  }
  return RecordFile(state);
}

std::uint64_t RecordFile::payload() const noexcept { return payload_of(state_->arrays); }

}  // namespace onecopy::records
