#include "onecopy/records/column.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "formats/wire/json.hpp"
#include "onecopy/base/error.hpp"
#include "records/building/leaves.hpp"
#include "records/building/nested.hpp"
#include "records/building/record_values.hpp"

namespace onecopy::records {
namespace {

constexpr auto anything = [](const auto& /*alternative*/) { return true; };

}  // namespace

struct ColumnBuffer : IntegerBuffer {
  using IntegerBuffer::IntegerBuffer;
};

Column::Column(BuildSpace& space, std::string path) : space_(&space), path_(std::move(path)) {}
Column::~Column() = default;

// The first alternative of this kind that takes the value, or a new one; the value is counted.
template <class T, class Takes, class Make>
T& Column::alternative(TypeKind kind, const Takes& takes, const Make& make) {
  std::size_t tag = 0;
  for (; tag < alternatives_.size(); ++tag)
    if (alternatives_[tag]->kind() == kind && takes(static_cast<const T&>(*alternatives_[tag]))) break;
  if (tag == alternatives_.size()) add(make());
  if (alternatives_.size() > 1) tags_->append(static_cast<std::int64_t>(tag));
  ++length_;
  return static_cast<T&>(*alternatives_[tag]);
}

void Column::add(std::unique_ptr<Alternative> alternative) {
  if (alternatives_.size() == most_alternatives)
    reject(FormatError::too_costly, path_, ": values of more than ", most_alternatives, " types");
  charge(BuildSpace::bytes_of_type(alternative->kind(), path_.size()));
  if (alternatives_.empty() && length_ != 0) {
    charge(BuildSpace::bytes_of_buffer(path_.size()));
    has_nulls_ = true;
  }
  if (alternatives_.empty()) alternative->nulls(length_);
  alternatives_.push_back(std::move(alternative));
  if (alternatives_.size() != 2) return;
  tags_ = std::make_unique<ColumnBuffer>(*space_);
  tags_->append_zeros(length_);
}

std::uint64_t Column::bytes_of_first_null() const noexcept {
  return has_nulls_ || alternatives_.empty() ? 0 : BuildSpace::bytes_of_buffer(path_.size());
}

void Column::charge(std::uint64_t bytes) {
  if (!space_->has_space_for(bytes))
    reject(FormatError::too_costly, json::describe(path_),
           ": the types of the rows, with the names of their fields, need more than ", BuildSpace::most_bytes_of_types,
           " bytes");
  space_->take(bytes);
}

void Column::nulls(std::uint64_t count) {
  if (count == 0) return;
  charge(bytes_of_first_null());
  has_nulls_ = has_nulls_ || !alternatives_.empty();
  if (!alternatives_.empty()) alternatives_.front()->nulls(count);
  if (tags_) tags_->append_zeros(count);
  length_ += count;
}

void Column::boolean(bool value) {
  alternative<BooleanValues>(TypeKind::boolean, anything, [this] {
    return std::make_unique<BooleanValues>(*space_);
  }).append(value);
}

void Column::integer(std::int64_t value) {
  alternative<NumberValues>(
      TypeKind::number, [value](const NumberValues& numbers) { return numbers.takes(value); },
      [this] { return std::make_unique<NumberValues>(*space_); })
      .append(value);
}

void Column::real(double value) {
  alternative<NumberValues>(
      TypeKind::number, [](const NumberValues& numbers) { return numbers.takes_reals(); },
      [this] { return std::make_unique<NumberValues>(*space_); })
      .append(value);
}

void Column::text(std::string_view utf8) {
  alternative<TextValues>(TypeKind::text, anything, [this] {
    return std::make_unique<TextValues>(*space_, TypeKind::text);
  }).append(std::as_bytes(std::span(utf8)));
}

void Column::bytes(Bytes value) {
  alternative<TextValues>(TypeKind::bytes, anything, [this] {
    return std::make_unique<TextValues>(*space_, TypeKind::bytes);
  }).append(value);
}

void Column::bigint(Bytes little_endian) {
  alternative<TextValues>(TypeKind::bigint, anything, [this] {
    return std::make_unique<TextValues>(*space_, TypeKind::bigint);
  }).append(little_endian);
}

void Column::array(const ArrayValue& value) {
  alternative<ArrayValues>(
      TypeKind::array, [&](const ArrayValues& arrays) { return arrays.takes(value); },
      [&] { return std::make_unique<ArrayValues>(*space_, value); })
      .append(value);
}

ListColumn& Column::list() {
  auto& lists = alternative<ListValues>(
      TypeKind::list, anything, [this] { return std::make_unique<ListValues>(*space_, TypeKind::list, path_); });
  lists.begin();
  return lists;
}

ListColumn& Column::tuple() {
  auto& tuples = alternative<ListValues>(
      TypeKind::tuple, anything, [this] { return std::make_unique<ListValues>(*space_, TypeKind::tuple, path_); });
  tuples.begin();
  return tuples;
}

FixedColumn& Column::fixed(std::size_t length) {
  auto& fixeds = alternative<FixedValues>(
      TypeKind::fixed, [length](const FixedValues& one) { return one.size() == length; },
      [&] { return std::make_unique<FixedValues>(*space_, length, path_); });
  fixeds.begin();
  return fixeds;
}

RecordColumn& Column::record() {
  auto& records = alternative<RecordValues>(TypeKind::record, anything,
                                            [this] { return std::make_unique<RecordValues>(*space_, path_); });
  records.begin();
  return records;
}

MapColumn& Column::map() {
  auto& maps =
      alternative<MapValues>(TypeKind::map, anything, [this] { return std::make_unique<MapValues>(*space_, path_); });
  maps.begin();
  return maps;
}

Column& Column::extension(std::string_view name) {
  return alternative<ExtensionValues>(
             TypeKind::extension, [name](const ExtensionValues& one) { return one.name() == name; },
             [&] { return std::make_unique<ExtensionValues>(*space_, name, path_); })
      .begin();
}

bool Column::fits_record(std::span<const std::string_view> keys) const {
  for (const auto& one : alternatives_)
    if (one->kind() == TypeKind::record) return static_cast<const RecordValues&>(*one).fits(keys);
  return RecordValues::may_begin(*space_, path_, keys);
}

Type Column::finish(const std::string& path, std::vector<Tensor>& tensors) {
  if (alternatives_.size() == 1) return alternatives_.front()->finish(path, tensors);
  Type type;
  type.length = length_;
  if (alternatives_.empty()) return type;
  type.kind = TypeKind::choice;
  add_choice_tensors(path, tensors);
  for (std::size_t i = 0; i < alternatives_.size(); ++i)
    type.children.push_back(alternatives_[i]->finish(child_path(path, type, i), tensors));
  return type;
}

// A value's position in its alternative, as in Arrow's dense union, is the number of earlier values with its tag.
void Column::add_choice_tensors(const std::string& path, std::vector<Tensor>& tensors) const {
  TensorList own(path, tensors);
  own.add("tag", DType::i8, {length_}, [this](const ByteSink& sink) { tags_->write_as(DType::i8, sink); });
  std::uint64_t longest = 0;
  for (const auto& one : alternatives_) longest = std::max(longest, one->length());
  const DType dtype = offset_type(longest);
  own.add("offsets", dtype, {length_}, [this, dtype](const ByteSink& sink) {
    std::array<std::int64_t, most_alternatives> counts{};
    tags_->write_as(dtype, sink, [&](std::int64_t tag) { return counts[static_cast<std::size_t>(tag)]++; });
  });
}

}  // namespace onecopy::records
