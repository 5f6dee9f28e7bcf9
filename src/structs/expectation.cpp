#include "structs/expectation.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <span>
#include <unordered_set>

#include "base/seeded_hash.hpp"
#include "onecopy/base/error.hpp"
#include "onecopy/structs/schema.hpp"
#include "structs/walk.hpp"

namespace onecopy::structs {
namespace {

// U64 [9104] as "U64[9104]".
std::string describe(const Entry& entry) {
  std::string text(to_string(entry.dtype));
  for (const std::uint64_t extent : entry.shape) text += "[" + std::to_string(extent) + "]";
  return text;
}

StructSchema expect_version(StructSchema schema, Versions versions) {
  if (schema.version > versions.current || schema.version < versions.oldest)
    reject(FormatError::unsupported, "the file has version ", schema.version, " of this structure, but the program ",
           (versions.oldest == versions.current
                ? "expects " + std::to_string(versions.current)
                : "opens " + std::to_string(versions.oldest) + " to " + std::to_string(versions.current)));
  return schema;
}

StructSchema schema_in(const Index& index) {
  if (index.kind() != Kind::structure)
    reject(FormatError::not_this_format,
           index.kind() == Kind::foreign
               ? "the file contains arrays from another tool instead of a structure that onecopy::save wrote"
               : "the file is of kind '" + std::string(to_string(index.kind())) +
                     "' instead of a structure that onecopy::save(path, value) wrote");
  const auto text = index.metadata().find("onecopy");
  return parse_struct_schema(text == index.metadata().end() ? std::string_view() : text->second);
}

}  // namespace

Expectation::Expectation(const ArrayFile& file, const Type& type, const std::string& path, const void* value,
                         Versions versions)
    : file_(file),
      schema_(expect_version(schema_in(file.index()), versions)),
      may_lack_(schema_.version < versions.current) {
  const Schema expected = schema_of(type, value, path);
  expected_.assign(expected.fields().begin(), expected.fields().end());
  expect(type, value, path, {}, 0);
  expect_nothing_else(path);
}

bool Expectation::is_missing(const std::string& path) const {
  return std::ranges::find(missing_, path) != missing_.end();
}

const Entry& Expectation::entry(const std::string& name) const { return file_.entry(name); }

std::uint64_t Expectation::number(const std::string& name) const { return numbers_.at(name); }

std::uint64_t Expectation::read_number(const std::string& name, std::uint64_t index) {
  std::uint64_t number = 0;
  file_.mapping()->read(entry(name).offset + index * sizeof number, std::as_writable_bytes(std::span(&number, 1)));
  return numbers_[name] = number;
}

void Expectation::expect(const Type& type, const void* object, const std::string& path, Rows rows, int depth) {
  expect_depth(depth, path);
  if (is_leaf(type)) return expect_leaf(type, path, rows);
  if (type.form != Form::record) return expect_elements(type, path, rows, depth);
  for (const auto& field : fields_in(type, object))
    expect(*field.type, object == nullptr ? nullptr : static_cast<const std::byte*>(object) + field.offset,
           join(path, field.name), rows, depth + 1);
}

// Values, or sequences of values.
void Expectation::expect_leaf(const Type& type, const std::string& path, Rows rows) {
  const std::string name = named(path);
  const std::string text = type_text(type);
  if (skip(name)) return;
  const std::string* in_file = schema_.find(name);
  const bool there = file_.index().find(name) != nullptr;
  if (in_file == nullptr || !there || *in_file != text)
    reject(FormatError::not_this_format, "'" + name + "': " + found(name) + ", but the program expects " + text);
  const bool sequence = type.form == Form::sequence;
  const Type& value = sequence ? *type.element : type;
  auto shape = extents_of(value);
  if (sequence) {
    // The file gives the number; its index has checked that the bytes exist.
    const auto extents = entry(name).shape;
    const std::uint64_t count = rows.column ? expect_offsets(path, rows) : extents.empty() ? 0 : extents.front();
    if (type.at_most_one && !rows.column && count > 1)
      reject(FormatError::not_this_format, "'", name, "': the file has ", count,
             " values, but the program expects at most one");
    shape.insert(shape.begin(), count);
  } else if (rows.column) {
    shape.insert(shape.begin(), rows.count);
  }
  expect_array(name, name, text, dtype_of(value), shape, value.alignment);
  if (sequence ? type.sequence->resize != nullptr : rows.column) columns_.push_back(entry(name).range());
}

// Sequences and arrays of elements that own memory: columns.
void Expectation::expect_elements(const Type& type, const std::string& path, Rows rows, int depth) {
  const std::string elements = of_elements(path, type);
  std::uint64_t count = 0;
  if (type.form == Form::array) {
    count = times(rows.count, type.count, path);
  } else {
    if (may_lack_ &&
        std::ranges::none_of(schema_.fields, [&](const auto& f) { return is_within(f.first, elements); })) {
      missing_.push_back(named(path));
      return;
    }
    if (rows.column) {
      count = expect_offsets(path, rows);
    } else {
      const std::string name = named(path, ".count");
      if (file_.index().find(name) == nullptr)
        reject(FormatError::not_this_format,
               "'" + elements + "': " + found(elements) + ", but the program expects a sequence");
      expect_array(name, elements, "a count", DType::u64, {}, alignof(std::uint64_t));
      count = read_number(name, 0);
      if (type.at_most_one && count > 1)
        reject(FormatError::not_this_format, "'", elements, "': the file has ", count,
               " values, but the program expects at most one");
    }
  }
  expect(*type.element, nullptr, elements, {true, count}, depth + 1);
}

// Returns the total number of elements of the sequences of a column.
std::uint64_t Expectation::expect_offsets(const std::string& path, Rows rows) {
  const std::string name = named(path, ".offsets");
  if (file_.index().find(name) == nullptr)
    reject(FormatError::not_this_format, "'" + name + "': the file has no such array");
  if (rows.count == UINT64_MAX)
    reject(FormatError::out_of_bounds, "'" + name + "': the number of values exceeds 64 bits");
  expect_array(name, named(path), "offsets", DType::u64, {rows.count + 1}, alignof(std::uint64_t));
  columns_.push_back(entry(name).range());
  return read_number(name, rows.count);
}

void Expectation::expect_array(const std::string& name, const std::string& field, const std::string& type, DType dtype,
                               const std::vector<std::uint64_t>& shape, std::size_t alignment) const {
  const Entry& array = entry(name);
  if (array.dtype != dtype || !std::ranges::equal(array.shape, shape)) {
    std::string wanted(to_string(dtype));
    for (const std::uint64_t extent : shape) wanted += "[" + std::to_string(extent) + "]";
    reject(FormatError::not_this_format, "'" + field + "': the file has " + describe(array) +
                                             (name == field ? "" : " under '" + name + "'") +
                                             ", but the program expects " + wanted + " for " + type);
  }
  if (alignment > 1 && array.length != 0 && array.offset % alignment != 0)
    reject(FormatError::unsupported, "'", name, "' begins at byte ", array.offset,
           " of the file, which is not a multiple of ", alignment, ": it cannot be mapped in place");
}

// Fields of the file that the program does not know.
void Expectation::expect_nothing_else(const std::string& path) const {
  std::unordered_set<std::string_view, SeededHash> known;
  for (const auto& field : expected_) known.insert(field.path);
  const auto other = std::ranges::find_if(schema_.fields, [&](const auto& field) {
    return !known.contains(field.first) && (path.empty() || is_within(field.first, path));
  });
  if (other != schema_.fields.end())
    reject(FormatError::not_this_format,
           "'" + other->first + "': the file has " + other->second + ", but the program has no such field");
}

// A field that a later version added.
bool Expectation::skip(const std::string& path) {
  if (!may_lack_ || schema_.find(path) != nullptr) return false;
  missing_.push_back(path);
  return true;
}

// The file's field, for a message.
std::string Expectation::found(const std::string& path) const {
  const Entry* array = file_.index().find(path);
  const std::string* type = schema_.find(path);
  const std::size_t extent = type == nullptr ? std::string::npos : type->find("[]");
  if (extent != std::string::npos && array != nullptr && !array->shape.empty())
    return "the file has " + std::string(*type).replace(extent, 2, "[" + std::to_string(array->shape.front()) + "]");
  if (type != nullptr) return "the file has " + *type + (array == nullptr ? ", but no array for it" : "");
  if (array != nullptr) return "the file has " + describe(*array) + ", which its schema does not list";
  for (const auto& field : schema_.fields)
    if (is_within(field.first, path))
      return "the file has fields inside it ('" + field.first + "': " + field.second + ")";
  return "the file has no such field" + unexpected();
}

// The first of the file's fields that the program does not have: perhaps the one that was renamed.
std::string Expectation::unexpected() const {
  const auto other = std::ranges::find_if(schema_.fields, [this](const auto& field) {
    return std::ranges::find(expected_, field.first, &SchemaField::path) == expected_.end();
  });
  if (other == schema_.fields.end()) return {};
  return " (it has '" + other->first + "': " + other->second + ", which the program does not)";
}

}  // namespace onecopy::structs
