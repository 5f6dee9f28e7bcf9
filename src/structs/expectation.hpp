// Compares a file with the program's type. Everything that opening relies on is checked here, before an object is made
// or a byte of the data is used.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "onecopy/arrays/array_file.hpp"
#include "onecopy/formats/struct_schema.hpp"
#include "onecopy/structs/save.hpp"
#include "onecopy/structs/type.hpp"

namespace onecopy::structs {

// How many values a path has: one, without an axis for it, or a column of `count`.
struct Rows {
  bool column = false;
  std::uint64_t count = 1;
};

class Expectation {
 public:
  // Throws FormatError, naming the first field that differs and both sides.
  Expectation(const ArrayFile& file, const Type& type, const std::string& path, const void* value, Versions versions);

  std::uint32_t version() const noexcept { return schema_.version; }

  // Fields that an older file lacks: they keep their initialisers' values.
  const std::vector<std::string>& missing() const noexcept { return missing_; }
  bool is_missing(const std::string& path) const;

  // The bytes that opening reads itself, beyond single numbers: offsets, and values that are copied.
  const std::vector<ByteRange>& columns() const noexcept { return columns_; }

  // The array under this name, which exists and has the right type and shape.
  const Entry& entry(const std::string& name) const;

  // A count, or the last of some offsets, as it was when it was compared with the arrays of the elements.
  std::uint64_t number(const std::string& name) const;

 private:
  std::uint64_t read_number(const std::string& name, std::uint64_t index);
  void expect(const Type& type, const void* object, const std::string& path, Rows rows, int depth);
  void expect_leaf(const Type& type, const std::string& path, Rows rows);
  void expect_elements(const Type& type, const std::string& path, Rows rows, int depth);
  std::uint64_t expect_offsets(const std::string& path, Rows rows);
  void expect_array(const std::string& name, const std::string& field, const std::string& type, DType dtype,
                    const std::vector<std::uint64_t>& shape, std::size_t alignment) const;
  void expect_nothing_else(const std::string& path) const;
  bool skip(const std::string& path);
  std::string found(const std::string& path) const;
  std::string unexpected() const;

  const ArrayFile& file_;
  StructSchema schema_;
  std::vector<SchemaField> expected_;
  std::vector<ByteRange> columns_;
  std::map<std::string, std::uint64_t> numbers_;
  std::vector<std::string> missing_;
  bool may_lack_ = false;
};

}  // namespace onecopy::structs
