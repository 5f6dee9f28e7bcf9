#include "records/building/nested.hpp"

#include <algorithm>

#include "onecopy/base/error.hpp"

namespace onecopy::records {

// --- lists and tuples ------------------------------------------------------------------------------------------

void ListValues::finish_value() {
  lengths_.append(static_cast<std::int64_t>(items_.length() - ended_));
  ended_ = items_.length();
}

void ListValues::describe(Type& type, TensorList& tensors) {
  add_offsets(tensors, lengths_, items_.length());
  type.children.push_back(items_.finish(child_path(tensors.path(), type, 0), tensors.all()));
}

Column& ListColumn::items() noexcept { return static_cast<ListValues*>(this)->item_column(); }
void ListColumn::end() { static_cast<ListValues*>(this)->finish_value(); }

// --- tuples of few values --------------------------------------------------------------------------------------

FixedValues::FixedValues(BuildSpace& space, std::size_t size, const std::string& path)
    : Alternative(space, TypeKind::fixed), path_(path) {
  for (std::size_t position = 0; position < size; ++position)
    columns_.push_back(std::make_unique<Column>(space, path + "." + std::to_string(position)));
}

void FixedValues::finish_value() const {
  const bool whole = std::ranges::all_of(columns_, [this](const auto& column) { return column->length() == length(); });
  if (!whole) reject(FormatError::inconsistent, path_ + ": a tuple lacks elements");
}

void FixedValues::fill(std::uint64_t count) {
  for (auto& column : columns_) column->nulls(count);
}

void FixedValues::describe(Type& type, TensorList& tensors) {
  for (std::size_t i = 0; i < columns_.size(); ++i)
    type.children.push_back(columns_[i]->finish(child_path(tensors.path(), type, i), tensors.all()));
}

Column& FixedColumn::at(std::size_t position) noexcept { return static_cast<FixedValues*>(this)->place(position); }
void FixedColumn::end() { static_cast<FixedValues*>(this)->finish_value(); }

// --- maps ------------------------------------------------------------------------------------------------------

void MapValues::finish_value() {
  if (keys_.length() != values_.length())
    reject(FormatError::inconsistent, path_ + ": a dict has different numbers of keys and values");
  lengths_.append(static_cast<std::int64_t>(keys_.length() - ended_));
  ended_ = keys_.length();
}

void MapValues::describe(Type& type, TensorList& tensors) {
  add_offsets(tensors, lengths_, keys_.length());
  type.children.push_back(keys_.finish(child_path(tensors.path(), type, 0), tensors.all()));
  type.children.push_back(values_.finish(child_path(tensors.path(), type, 1), tensors.all()));
}

Column& MapColumn::keys() noexcept { return static_cast<MapValues*>(this)->key_column(); }
Column& MapColumn::values() noexcept { return static_cast<MapValues*>(this)->value_column(); }
void MapColumn::end() { static_cast<MapValues*>(this)->finish_value(); }

// --- objects with a stand-in -----------------------------------------------------------------------------------

void ExtensionValues::describe(Type& type, TensorList& tensors) {
  type.name = name_;
  type.children.push_back(storage_.finish(child_path(tensors.path(), type, 0), tensors.all()));
}

}  // namespace onecopy::records
