#include "onecopy/structs/save.hpp"

#include <algorithm>
#include <bit>
#include <utility>

#include "onecopy/arrays/array_writer.hpp"
#include "onecopy/files/memory_file_writer.hpp"
#include "onecopy/formats/struct_schema.hpp"
#include "onecopy/structs/share.hpp"
#include "structs/columns.hpp"
#include "structs/walk.hpp"

namespace onecopy {
namespace {

static_assert(std::endian::native == std::endian::little, "files hold little-endian numbers, which are used in place");

constexpr std::uint64_t line = 64;  // bytes: every array starts on a multiple of it

Layout layout_of(const structs::Type& type, const void* value, std::span<const structs::Column> columns,
                 std::uint32_t version, const SaveOptions& options) {
  const Schema schema = structs::schema_of(type, value);
  StructSchema stored{version, {}};
  for (const auto& field : schema.fields()) stored.fields.emplace_back(field.path, field.type);
  std::vector<ArraySpec> specs;
  std::uint64_t alignment = line;
  for (const auto& column : columns) {
    specs.push_back(column.spec);
    alignment = std::max<std::uint64_t>(alignment, column.alignment);
  }
  LayoutOptions layout{.kind = Kind::structure,
                       .metadata = options.metadata,
                       .schema = to_json(stored, schema.hash()),
                       .align = alignment,
                       .checksum = options.checksum};
  return Layout::plan(std::move(specs), std::move(layout));
}

void write(ArrayWriter& writer, std::span<const structs::Column> columns) {
  for (const auto& placement : writer.layout().placements())
    if (placement.array) columns[*placement.array].write([&writer](Bytes bytes) { writer.write(bytes); });
  writer.commit();
}

}  // namespace

std::uint64_t SizeReport::of(std::string_view path) const noexcept {
  std::uint64_t sum = 0;
  for (const auto& field : fields)
    if (structs::is_within(field.path, path)) sum += field.bytes;
  return sum;
}

std::string to_string(const SizeReport& report) {
  std::vector<const SizeReport::FieldSize*> rows;
  std::size_t widest = 0;
  for (const auto& field : report.fields) {
    rows.push_back(&field);
    widest = std::max(widest, field.path.size());
  }
  std::ranges::stable_sort(rows, std::greater{}, &SizeReport::FieldSize::bytes);
  std::string text = std::to_string(report.bytes) + " bytes\n";
  for (const auto* row : rows) {
    const std::uint64_t thousandths = report.bytes == 0 ? 0 : row->bytes / ((report.bytes + 999) / 1000);
    text += "  " + row->path + std::string(widest + 2 - row->path.size(), ' ') + std::to_string(row->bytes) + "  " +
            std::to_string(thousandths / 10) + "." + std::to_string(thousandths % 10) + " %  " + row->type + "\n";
  }
  return text;
}

namespace structs {

std::uint64_t save_value(const std::filesystem::path& path, const Type& type, const void* value, std::uint32_t version,
                         const SaveOptions& options) {
  const auto columns = columns_of(type, value);
  ArrayWriter writer(path, layout_of(type, value, columns, version, options));
  write(writer, columns);
  return writer.layout().file_size();
}

ArrayFile share_value(const Type& type, const void* value, std::uint32_t version, const ShareOptions& options) {
  const auto columns = columns_of(type, value);
  auto layout = layout_of(type, value, columns, version, options.save);
  MemoryFileWriter file(options.name, layout.file_size());
  ArrayWriter writer(file, std::move(layout));
  write(writer, columns);
  return ArrayFile::from_descriptor(file.descriptor(), options.name);
}

SizeReport size_of_value(const Type& type, const void* value) {
  SizeReport report;
  const Schema schema = schema_of(type, value);
  for (const auto& field : schema.fields()) report.fields.push_back({field.path, field.type, 0});
  for (const auto& column : columns_of(type, value)) {
    report.bytes += column.bytes;
    const auto field = std::ranges::find_if(
        report.fields, [&](const auto& one) { return structs::is_within(one.path, column.field); });
    if (field != report.fields.end()) field->bytes += column.bytes;
  }
  return report;
}

}  // namespace structs
}  // namespace onecopy
