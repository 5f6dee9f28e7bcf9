#include "records/building/record_values.hpp"

#include <algorithm>

#include "onecopy/base/error.hpp"

namespace onecopy::records {
namespace {

DType shape_type(std::size_t shapes) noexcept {
  if (shapes <= std::size_t{1} << 8U) return DType::u8;
  return shapes <= std::size_t{1} << 16U ? DType::u16 : DType::u32;
}

}  // namespace

std::size_t RecordValues::ShapeHash::operator()(const Shape& shape) const noexcept {
  return seeded_hash({reinterpret_cast<const char*>(shape.data()), shape.size() * sizeof(Shape::value_type)});
}

bool RecordValues::is_like_last(std::span<const std::string_view> keys) const {
  if (shapes_.empty()) return false;
  const auto name_of = [this](std::uint32_t field) -> std::string_view { return fields_[field]->name; };
  return std::ranges::equal(shapes_[last_], keys, {}, name_of);
}

bool RecordValues::may_begin(const BuildSpace& space, const std::string& path, std::span<const std::string_view> keys) {
  std::uint64_t bytes = keys.size() * BuildSpace::bytes_of_field;
  for (const auto key : keys) bytes += BuildSpace::bytes_of_column(path.size(), key.size());
  return keys.size() <= most_fields && space.has_space_for(bytes);
}

// The bytes of a dict with these fields and further keys: their columns, and the nulls of all columns that lack a
// value.
std::uint64_t RecordValues::bytes_of_next(const Shape& shape, std::span<const std::string_view> added) const {
  std::uint64_t bytes = (shape.size() + added.size()) * BuildSpace::bytes_of_field;
  for (const auto key : added) {
    bytes += BuildSpace::bytes_of_column(path_.size(), key.size());
    if (length() != 0) bytes += BuildSpace::bytes_of_buffer(path_.size() + key.size());
  }
  std::vector<bool> is_there(fields_.size());
  for (const std::uint32_t field : shape) is_there[field] = true;
  for (std::size_t i = 0; i < fields_.size(); ++i)
    if (!is_there[i]) bytes += fields_[i]->column.bytes_of_first_null();
  return bytes;
}

bool RecordValues::fits(std::span<const std::string_view> keys) const {
  if (is_like_last(keys)) return true;
  Shape shape;
  std::vector<std::string_view> added;
  for (const auto key : keys) {
    if (const auto found = numbers_.find(key); found != numbers_.end())
      shape.push_back(found->second);
    else
      added.push_back(key);
  }
  if (fields_.size() + added.size() > most_fields) return false;
  if (length() >= first_values && late_fields_ + added.size() > most_late_fields) return false;
  if (added.empty() && shape_numbers_.contains(shape)) return true;
  return shapes_.size() < most_shapes && space_->has_space_for(bytes_of_next(shape, added));
}

std::uint32_t RecordValues::number_of(std::string_view key) {
  const std::size_t position = current_.size();
  if (!shapes_.empty()) {
    const Shape& guess = shapes_[last_];
    if (position < guess.size() && fields_[guess[position]]->name == key) return guess[position];
  }
  if (const auto found = numbers_.find(key); found != numbers_.end()) return found->second;
  const auto number = static_cast<std::uint32_t>(fields_.size());
  fields_.push_back(std::make_unique<Field>(*space_, key, path_));
  numbers_.emplace(fields_.back()->name, number);
  space_->take(key.size());
  if (length() > first_values) ++late_fields_;
  return number;
}

Column& RecordValues::field_column(std::string_view key) {
  const std::uint32_t number = number_of(key);
  Column& column = fields_[number]->column;
  const std::uint64_t before = length() - 1;
  if (column.length() > before) reject(FormatError::inconsistent, path_, ": a dict contains the key '", key, "' twice");
  column.nulls(before - column.length());
  current_.push_back(number);
  return column;
}

void RecordValues::finish_value() {
  if (shapes_.empty() || current_ != shapes_[last_]) {
    const auto [known, added] = shape_numbers_.try_emplace(current_, static_cast<std::uint32_t>(shapes_.size()));
    if (added) {
      shapes_.push_back(current_);
      space_->take(current_.size() * BuildSpace::bytes_of_field);
    }
    last_ = known->second;
  }
  shape_.append(last_);
  current_.clear();
}

void RecordValues::describe(Type& type, TensorList& tensors) {
  type.shapes = shapes_;
  for (const auto& field : fields_) type.fields.push_back(field->name);
  if (shapes_.size() > 1) {
    const DType dtype = shape_type(shapes_.size());
    tensors.add("shape", dtype, {type.length}, [this, dtype](const ByteSink& sink) { shape_.write_as(dtype, sink); });
  }
  for (std::size_t i = 0; i < fields_.size(); ++i) {
    Column& column = fields_[i]->column;
    column.nulls(length() - column.length());
    type.children.push_back(column.finish(child_path(tensors.path(), type, i), tensors.all()));
  }
}

Column& RecordColumn::field(std::string_view key) { return static_cast<RecordValues*>(this)->field_column(key); }
void RecordColumn::end() { static_cast<RecordValues*>(this)->finish_value(); }

}  // namespace onecopy::records
