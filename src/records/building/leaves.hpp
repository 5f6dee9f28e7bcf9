// The alternatives that have no columns of their own: booleans, numbers, texts, arrays.
#pragma once

#include <cstdint>
#include <string>

#include "records/building/alternative.hpp"

namespace onecopy::records {

class BooleanValues final : public Alternative {
 public:
  explicit BooleanValues(Spool& spool) : Alternative(spool, TypeKind::boolean), data_(spool) {}

  void append(bool value) {
    count_value();
    data_.append(value);
  }

 private:
  void fill(std::uint64_t count) override { data_.append(false, count); }
  void describe(Type& type, TensorList& tensors) override;

  BitBuffer data_;
};

// Integers, or reals, or both: then all are stored as reals, and a bitmap marks the integers. Wide integers, which no
// real holds exactly, cannot be combined with reals: Column makes two of these alternatives.
class NumberValues final : public Alternative {
 public:
  explicit NumberValues(Spool& spool)
      : Alternative(spool, TypeKind::number), integers_(spool), reals_(spool), is_int_(spool) {}

  bool takes(std::int64_t value) const noexcept { return !has_reals_ || !is_wide(value); }
  bool takes_reals() const noexcept { return !has_wide_; }

  void append(std::int64_t value) {
    count_value();
    if (has_reals_) return append_to_reals(value);
    has_integers_ = true;
    has_wide_ |= is_wide(value);
    integers_.append(value);
  }

  void append(double value) {
    if (!has_reals_) turn_real();
    count_value();
    reals_.append(value);
    if (has_integers_) is_int_.append(false);
  }

 private:
  static bool is_wide(std::int64_t value) noexcept {  // beyond 2^53 in magnitude a real does not hold it
    constexpr std::uint64_t exact = std::uint64_t{1} << 53U;
    return static_cast<std::uint64_t>(value) + exact > 2 * exact;
  }

  void turn_real();
  void append_to_reals(std::int64_t value);
  void fill(std::uint64_t count) override;
  void describe(Type& type, TensorList& tensors) override;

  IntegerBuffer integers_;  // as long as there are no reals
  ByteBuffer reals_;
  BitBuffer is_int_;  // as long as both
  bool has_integers_ = false;
  bool has_wide_ = false;
  bool has_reals_ = false;
};

// Text, bytes, and integers of any length as their bytes.
class TextValues final : public Alternative {
 public:
  TextValues(Spool& spool, TypeKind kind) : Alternative(spool, kind), lengths_(spool), data_(spool) {}

  void append(Bytes value) {
    count_value();
    lengths_.append(static_cast<std::int64_t>(value.size()));
    data_.append(value);
  }

 private:
  void fill(std::uint64_t count) override { lengths_.append_zeros(count); }
  void describe(Type& type, TensorList& tensors) override;

  IntegerBuffer lengths_;
  ByteBuffer data_;
};

class ArrayValues final : public Alternative {
 public:
  ArrayValues(Spool& spool, const ArrayValue& like);

  bool takes(const ArrayValue& value) const noexcept {
    return value.dtype == dtype_ && value.shape.size() == ndim_ && value.scalar == scalar_ &&
           value.item_size == item_size_;
  }

  // Throws FormatError unless the number of bytes matches the shape.
  void append(const ArrayValue& value);

 private:
  void fill(std::uint64_t count) override;
  void describe(Type& type, TensorList& tensors) override;

  std::string dtype_;
  std::uint32_t item_size_;
  std::size_t ndim_;
  bool scalar_;
  std::uint64_t items_ = 0;
  IntegerBuffer lengths_;  // in items
  ByteBuffer data_;
  ByteBuffer shapes_;  // U64, where ndim is not 1
};

}  // namespace onecopy::records
