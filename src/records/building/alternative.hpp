// One kind of value in a column. Most columns have one alternative; of two or more the column becomes a choice.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "onecopy/formats/record_schema.hpp"
#include "onecopy/records/column.hpp"
#include "records/building/buffers.hpp"
#include "records/building/tensor.hpp"

namespace onecopy::records {

class Alternative {
 public:
  // `kind` is the kind that Column selects by; `finish` decides on the final one: integers may have become numbers.
  Alternative(Spool& spool, TypeKind kind) : kind_(kind), validity_(spool) {}
  Alternative(const Alternative&) = delete;
  Alternative& operator=(const Alternative&) = delete;
  virtual ~Alternative() = default;

  TypeKind kind() const noexcept { return kind_; }
  std::uint64_t length() const noexcept { return validity_.size(); }

  void nulls(std::uint64_t count) {
    validity_.append(false, count);
    fill(count);
  }

  Type finish(const std::string& path, std::vector<Tensor>& tensors);

 protected:
  void count_value() { validity_.append(true); }

 private:
  virtual void fill(std::uint64_t count) = 0;  // the contents of the buffers where there is no value
  virtual void describe(Type& type, TensorList& tensors) = 0;

  TypeKind kind_;
  BitBuffer validity_;
};

// Converts lengths to the offsets of the file.
void add_offsets(TensorList& tensors, const IntegerBuffer& lengths, std::uint64_t total);

}  // namespace onecopy::records
