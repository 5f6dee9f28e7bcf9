// Dicts whose keys are text: a column per key. Most rows have equal keys, and then a key costs one comparison.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/seeded_hash.hpp"
#include "records/building/alternative.hpp"
#include "records/building/build_space.hpp"

namespace onecopy::records {

class RecordValues final : public Alternative, public RecordColumn {
 public:
  static constexpr std::size_t most_fields = 1024;
  static constexpr std::size_t most_late_fields = 64;  // that the first values did not have
  static constexpr std::uint64_t first_values = 64;
  static constexpr std::size_t most_shapes = 65536;

  RecordValues(BuildSpace& space, std::string path)
      : Alternative(space, TypeKind::record), space_(&space), path_(std::move(path)), shape_(space) {}

  // Whether a first dict with these keys may become a record, or a further one.
  static bool may_begin(const BuildSpace& space, const std::string& path, std::span<const std::string_view> keys);
  bool fits(std::span<const std::string_view> keys) const;
  void begin() { count_value(); }
  Column& field_column(std::string_view key);
  void finish_value();

 private:
  using Shape = std::vector<std::uint32_t>;  // which fields, in which order

  struct Field {
    Field(BuildSpace& space, std::string_view key, const std::string& path)
        : name(key), column(space, path + "." + name) {}
    std::string name;
    Column column;  // ends with the last value that had this field; trailing nulls are added when they are needed
  };

  struct ShapeHash {
    std::size_t operator()(const Shape& shape) const noexcept;
  };

  std::uint64_t bytes_of_next(const Shape& shape, std::span<const std::string_view> added) const;

  bool is_like_last(std::span<const std::string_view> keys) const;
  std::uint32_t number_of(std::string_view key);
  void fill(std::uint64_t count) override { shape_.append_zeros(count); }
  void describe(Type& type, TensorList& tensors) override;

  BuildSpace* space_;
  std::string path_;
  std::vector<std::unique_ptr<Field>> fields_;
  std::unordered_map<std::string_view, std::uint32_t, SeededHash> numbers_;  // of the fields; refers to their names
  std::size_t late_fields_ = 0;
  std::vector<Shape> shapes_;
  std::unordered_map<Shape, std::uint32_t, ShapeHash> shape_numbers_;
  Shape current_;           // the fields of the value that has begun
  std::uint32_t last_ = 0;  // the shape of the previous value, which is the guess for the next
  IntegerBuffer shape_;
};

}  // namespace onecopy::records
