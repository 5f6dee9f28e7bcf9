#include "records/building/leaves.hpp"

#include "formats/checked_size.hpp"
#include "onecopy/base/error.hpp"

namespace onecopy::records {

Type Alternative::finish(const std::string& path, std::vector<Tensor>& tensors) {
  Type type;
  type.kind = kind_;
  type.length = length();
  type.nullable = !validity_.all_ones();
  TensorList own(path, tensors);
  if (type.nullable)
    own.add("validity", DType::u8, {validity_.byte_size()}, [this](const ByteSink& sink) { validity_.write(sink); });
  describe(type, own);
  return type;
}

void add_offsets(TensorList& tensors, const IntegerBuffer& lengths, std::uint64_t total) {
  const DType dtype = offset_type(total);
  tensors.add("offsets", dtype, {lengths.size() + 1},
              [&lengths, dtype](const ByteSink& sink) { lengths.write_sums(dtype, sink); });
}

void BooleanValues::describe(Type& /*type*/, TensorList& tensors) {
  tensors.add("data", DType::u8, {data_.byte_size()}, [this](const ByteSink& sink) { data_.write(sink); });
}

// Values that were added as integers: all of it, or nulls.
void NumberValues::turn_real() {
  has_reals_ = true;
  if (!has_integers_) return reals_.append_zeros(length() * sizeof(double));
  integers_.for_each([this](std::span<const std::int64_t> values) {
    for (const std::int64_t value : values) reals_.append(static_cast<double>(value));
  });
  is_int_.append(true, integers_.size());
  integers_.clear();
}

void NumberValues::append_to_reals(std::int64_t value) {
  if (!has_integers_) is_int_.append(false, length() - 1);
  has_integers_ = true;
  reals_.append(static_cast<double>(value));
  is_int_.append(true);
}

void NumberValues::fill(std::uint64_t count) {
  if (!has_reals_) return integers_.append_zeros(count);
  reals_.append_zeros(count * sizeof(double));
  if (has_integers_) is_int_.append(false, count);
}

void NumberValues::describe(Type& type, TensorList& tensors) {
  if (!has_reals_) {
    type.kind = TypeKind::integer;
    const DType dtype = integers_.range().narrowest();
    tensors.add("data", dtype, {type.length}, [this, dtype](const ByteSink& sink) { integers_.write_as(dtype, sink); });
    return;
  }
  type.kind = has_integers_ ? TypeKind::number : TypeKind::real;
  tensors.add("data", DType::f64, {type.length}, [this](const ByteSink& sink) { reals_.write(sink); });
  if (has_integers_)
    tensors.add("ints", DType::u8, {is_int_.byte_size()}, [this](const ByteSink& sink) { is_int_.write(sink); });
}

void TextValues::describe(Type& /*type*/, TensorList& tensors) {
  add_offsets(tensors, lengths_, data_.size());
  tensors.add("data", DType::u8, {data_.size()}, [this](const ByteSink& sink) { data_.write(sink); });
}

ArrayValues::ArrayValues(Spool& spool, const ArrayValue& like)
    : Alternative(spool, TypeKind::array),
      dtype_(like.dtype),
      item_size_(like.item_size),
      ndim_(like.shape.size()),
      scalar_(like.scalar),
      lengths_(spool),
      data_(spool),
      shapes_(spool) {}

void ArrayValues::append(const ArrayValue& value) {
  const auto items = item_size_ == 0 ? std::nullopt : checked_size(value.shape, 1);
  if (!items || value.bytes.size() % item_size_ != 0 || value.bytes.size() / item_size_ != *items)
    reject(FormatError::inconsistent, "an array of ", dtype_, " has ", value.bytes.size(),
           " bytes, which does not match its shape");
  count_value();
  lengths_.append(static_cast<std::int64_t>(*items));
  data_.append(value.bytes);
  if (ndim_ != 1) shapes_.append(std::as_bytes(value.shape));
  items_ += *items;
}

void ArrayValues::fill(std::uint64_t count) {
  lengths_.append_zeros(count);
  if (ndim_ != 1) shapes_.append_zeros(count * ndim_ * sizeof(std::uint64_t));
}

void ArrayValues::describe(Type& type, TensorList& tensors) {
  type.name = dtype_;
  type.ndim = static_cast<std::uint32_t>(ndim_);
  type.item_size = item_size_;
  type.scalar = scalar_;
  add_offsets(tensors, lengths_, items_);
  tensors.add("data", DType::u8, {data_.size()}, [this](const ByteSink& sink) { data_.write(sink); });
  if (ndim_ != 1)
    tensors.add("shape", DType::u64, {type.length, ndim_}, [this](const ByteSink& sink) { shapes_.write(sink); });
}

}  // namespace onecopy::records
