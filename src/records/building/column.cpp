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

template <class T>
T& begun(T& alternative) {
  alternative.begin();
  return alternative;
}

}  // namespace

struct ColumnBuffer : IntegerBuffer {
  using IntegerBuffer::IntegerBuffer;
};

Column::Column(BuildSpace& space, std::string path) : space_(&space), path_(std::move(path)) {}
Column::~Column() = default;

// The first alternative of this kind that takes the value, or a new one of these arguments; the value is counted.
template <class T, class Takes, class... Arguments>
T& Column::alternative(TypeKind kind, const Takes& takes, const Arguments&... arguments) {
  std::size_t tag = 0;
  for (; tag < alternatives_.size(); ++tag)
    if (alternatives_[tag]->kind() == kind && takes(static_cast<const T&>(*alternatives_[tag]))) break;
  if (tag == alternatives_.size()) add(std::make_unique<T>(*space_, arguments...));
  if (alternatives_.size() > 1) tags_->append(static_cast<std::int64_t>(tag));
  ++length_;
  return static_cast<T&>(*alternatives_[tag]);
}

void Column::add(std::unique_ptr<Alternative> alternative) {
  if (alternatives_.size() == most_alternatives)
    reject(FormatError::too_costly, path_, ": the values have more than ", most_alternatives, " types");
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

void Column::boolean(bool value) { alternative<BooleanValues>(TypeKind::boolean, anything).append(value); }

void Column::integer(std::int64_t value) {
  const auto takes = [value](const NumberValues& numbers) { return numbers.takes(value); };
  alternative<NumberValues>(TypeKind::number, takes).append(value);
}

void Column::real(double value) {
  const auto takes = [](const NumberValues& numbers) { return numbers.takes_reals(); };
  alternative<NumberValues>(TypeKind::number, takes).append(value);
}

void Column::text(std::string_view utf8) {
  alternative<TextValues>(TypeKind::text, anything, TypeKind::text).append(std::as_bytes(std::span(utf8)));
}

void Column::bytes(Bytes value) { alternative<TextValues>(TypeKind::bytes, anything, TypeKind::bytes).append(value); }

void Column::bigint(Bytes little_endian) {
  alternative<TextValues>(TypeKind::bigint, anything, TypeKind::bigint).append(little_endian);
}

void Column::array(const ArrayValue& value) {
  const auto takes = [&](const ArrayValues& arrays) { return arrays.takes(value); };
  alternative<ArrayValues>(TypeKind::array, takes, value).append(value);
}

ListColumn& Column::list() { return begun(alternative<ListValues>(TypeKind::list, anything, TypeKind::list, path_)); }

ListColumn& Column::tuple() {
  return begun(alternative<ListValues>(TypeKind::tuple, anything, TypeKind::tuple, path_));
}

FixedColumn& Column::fixed(std::size_t length) {
  const auto takes = [length](const FixedValues& one) { return one.size() == length; };
  return begun(alternative<FixedValues>(TypeKind::fixed, takes, length, path_));
}

RecordColumn& Column::record() { return begun(alternative<RecordValues>(TypeKind::record, anything, path_)); }

MapColumn& Column::map() { return begun(alternative<MapValues>(TypeKind::map, anything, path_)); }

Column& Column::extension(std::string_view name) {
  const auto takes = [name](const ExtensionValues& one) { return one.name() == name; };
  return alternative<ExtensionValues>(TypeKind::extension, takes, name, path_).begin();
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
