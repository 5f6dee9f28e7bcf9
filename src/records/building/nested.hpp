// The alternatives that have columns below them, except records: lists, tuples, maps, and objects with a stand-in.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "records/building/alternative.hpp"
#include "records/building/build_space.hpp"

namespace onecopy::records {

class ListValues final : public Alternative, public ListColumn {
 public:
  ListValues(BuildSpace& space, TypeKind kind, const std::string& path)
      : Alternative(space, kind), lengths_(space), items_(space, path + ".item") {}

  void begin() { count_value(); }
  void finish_value();
  Column& item_column() noexcept { return items_; }

 private:
  void fill(std::uint64_t count) override { lengths_.append_zeros(count); }
  void describe(Type& type, TensorList& tensors) override;

  IntegerBuffer lengths_;
  std::uint64_t ended_ = 0;  // items of the lists that have ended
  Column items_;
};

class FixedValues final : public Alternative, public FixedColumn {
 public:
  FixedValues(BuildSpace& space, std::size_t size, const std::string& path);

  void begin() { count_value(); }
  void finish_value() const;
  std::size_t size() const noexcept { return columns_.size(); }
  Column& place(std::size_t position) { return *columns_[position]; }

 private:
  void fill(std::uint64_t count) override;
  void describe(Type& type, TensorList& tensors) override;

  std::string path_;
  std::vector<std::unique_ptr<Column>> columns_;
};

class MapValues final : public Alternative, public MapColumn {
 public:
  MapValues(BuildSpace& space, const std::string& path)
      : Alternative(space, TypeKind::map),
        path_(path),
        lengths_(space),
        keys_(space, path + ".key"),
        values_(space, path + ".value") {}

  void begin() { count_value(); }
  void finish_value();
  Column& key_column() noexcept { return keys_; }
  Column& value_column() noexcept { return values_; }

 private:
  void fill(std::uint64_t count) override { lengths_.append_zeros(count); }
  void describe(Type& type, TensorList& tensors) override;

  std::string path_;
  IntegerBuffer lengths_;
  std::uint64_t ended_ = 0;
  Column keys_;
  Column values_;
};

class ExtensionValues final : public Alternative {
 public:
  ExtensionValues(BuildSpace& space, std::string_view name, const std::string& path)
      : Alternative(space, TypeKind::extension), name_(name), storage_(space, path + ".storage") {}

  const std::string& name() const noexcept { return name_; }
  Column& begin() {
    count_value();
    return storage_;
  }

 private:
  void fill(std::uint64_t count) override { storage_.nulls(count); }
  void describe(Type& type, TensorList& tensors) override;

  std::string name_;
  Column storage_;
};

}  // namespace onecopy::records
