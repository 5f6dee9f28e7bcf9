#include "records/building/buffers.hpp"

#include <limits>
#include <utility>

namespace onecopy::records {
namespace {

constexpr std::size_t block_bytes = tail_bytes;  // size of one piece that is passed on

// Up to this number, zeros are appended like other numbers: a column with a value in every hundredth row must not have
// a piece for each.
constexpr std::size_t few_zeros = 1024;

// Passes on `count` equal bytes.
void put_run(std::byte byte, std::uint64_t count, const ByteSink& sink) {
  const std::vector<std::byte> block(std::min<std::uint64_t>(count, block_bytes), byte);
  for (; count > 0; count -= std::min<std::uint64_t>(count, block.size()))
    sink(std::span(block).first(std::min<std::uint64_t>(count, block.size())));
}

// Calls with a value of the selected integer type.
template <class Call>
void with_type(DType dtype, const Call& call) {
  switch (dtype) {
    case DType::i8: return call(std::int8_t{});
    case DType::i16: return call(std::int16_t{});
    case DType::i32: return call(std::int32_t{});
    case DType::u8: return call(std::uint8_t{});
    case DType::u16: return call(std::uint16_t{});
    case DType::u32: return call(std::uint32_t{});
    default: return call(std::int64_t{});
  }
}

template <class Number>
constexpr bool holds(const IntegerRange& range) noexcept {
  return range.lowest >= std::numeric_limits<Number>::min() && range.highest <= std::numeric_limits<Number>::max();
}

IntegerRange range_of(std::span<const std::int64_t> values) noexcept {
  IntegerRange range;
  for (const std::int64_t value : values) {
    range.lowest = std::min(range.lowest, value);
    range.highest = std::max(range.highest, value);
  }
  return range;
}

template <class To, class From>
void convert(std::span<const From> from, std::vector<To>& to) {
  to.resize(from.size());
  std::ranges::transform(from, to.begin(), [](From value) { return static_cast<To>(value); });
}

}  // namespace

// --- ByteBuffer ------------------------------------------------------------------------------------------------

void ByteBuffer::append_beyond(Bytes bytes) {
  if (bytes.size() > tail_bytes - used_) flush();
  if (bytes.size() > tail_bytes) return add_piece({spool_->append(bytes), bytes.size()});
  constexpr std::size_t least = 64;
  if (bytes.size() > tail_.size() - used_) tail_.resize(std::max(least, std::bit_ceil(used_ + bytes.size())));
  append(bytes);
}

void ByteBuffer::append_zeros(std::uint64_t count) {
  if (count <= few_zeros * sizeof(std::int64_t))
    return put_run(std::byte{0}, count, [this](Bytes bytes) { append(bytes); });
  flush();
  add_piece({zeros, count});
}

void ByteBuffer::flush() {
  if (used_ == 0) return;
  add_piece({spool_->append(Bytes(tail_).first(used_)), used_});
  used_ = 0;
}

void ByteBuffer::add_piece(Piece piece) {
  pieces_.push_back(piece);
  spooled_ += piece.length;
}

void ByteBuffer::write(const ByteSink& sink) const {
  std::vector<std::byte> block;
  for (const auto& piece : pieces_) {
    if (piece.offset == zeros) {
      put_run(std::byte{0}, piece.length, sink);
      continue;
    }
    for (std::uint64_t done = 0; done < piece.length; done += block.size()) {
      block.resize(std::min<std::uint64_t>(piece.length - done, block_bytes));
      spool_->read(piece.offset + done, block);
      sink(block);
    }
  }
  sink(Bytes(tail_).first(used_));
}

// --- IntegerBuffer ---------------------------------------------------------------------------------------------

DType IntegerRange::narrowest() const noexcept {
  if (holds<std::int8_t>(*this)) return DType::i8;
  if (holds<std::int16_t>(*this)) return DType::i16;
  return holds<std::int32_t>(*this) ? DType::i32 : DType::i64;
}

void IntegerBuffer::append_zeros(std::uint64_t count) {
  if (count <= few_zeros) {
    if (count > most - tail_.size()) flush();
    return tail_.resize(tail_.size() + count);
  }
  flush();
  pieces_.push_back({0, count, DType::i8, true});
  spooled_ += count;
}

void IntegerBuffer::flush() {
  if (tail_.empty()) return;
  const auto range = range_of(tail_);
  Piece piece{0, tail_.size(), range.narrowest(), range.lowest == 0 && range.highest == 0};
  if (!piece.zeros) {
    with_type(piece.dtype, [&](auto type) {
      std::vector<decltype(type)> narrow;
      convert(std::span<const std::int64_t>(tail_), narrow);
      piece.offset = spool_->append(std::as_bytes(std::span(narrow)));
    });
  }
  pieces_.push_back(piece);
  spooled_ += tail_.size();
  spooled_range_ = {std::min(spooled_range_.lowest, range.lowest), std::max(spooled_range_.highest, range.highest)};
  tail_.clear();
}

IntegerRange IntegerBuffer::range() const noexcept {
  const auto last = range_of(tail_);
  return {std::min(spooled_range_.lowest, last.lowest), std::max(spooled_range_.highest, last.highest)};
}

void IntegerBuffer::for_each(const Visit& visit) const {
  std::vector<std::int64_t> block;
  for (const auto& piece : pieces_) {
    if (piece.zeros) {
      block.assign(std::min<std::uint64_t>(piece.count, most), 0);
      for (std::uint64_t left = piece.count; left > 0; left -= std::min<std::uint64_t>(left, most))
        visit(std::span(block).first(std::min<std::uint64_t>(left, most)));
      continue;
    }
    with_type(piece.dtype, [&](auto type) {
      std::vector<decltype(type)> narrow(piece.count);
      spool_->read(piece.offset, std::as_writable_bytes(std::span(narrow)));
      convert(std::span<const decltype(type)>(narrow), block);
    });
    visit(block);
  }
  if (!tail_.empty()) visit(tail_);
}

void IntegerBuffer::write_as(DType dtype, const ByteSink& sink, const Map& map) const {
  with_type(dtype, [&](auto type) {
    std::vector<decltype(type)> narrow;
    for_each([&](std::span<const std::int64_t> values) {
      narrow.resize(values.size());
      std::ranges::transform(values, narrow.begin(),
                             [&](auto value) { return static_cast<decltype(type)>(map(value)); });
      sink(std::as_bytes(std::span(narrow)));
    });
  });
}

void IntegerBuffer::write_sums(DType dtype, const ByteSink& sink) const {
  put_run(std::byte{0}, item_alignment(dtype), sink);
  std::int64_t sum = 0;
  write_as(dtype, sink, [&sum](std::int64_t value) { return sum += value; });
}

void IntegerBuffer::clear() noexcept {
  pieces_ = {};
  tail_ = {};
  spooled_ = 0;
  spooled_range_ = {};
}

// --- BitBuffer -------------------------------------------------------------------------------------------------

void BitBuffer::append(bool bit, std::uint64_t count) {
  if (count == 0) return;
  if (size_ == 0) first_ = bit;
  if (!all_equal_) return push_run(bit, count);
  if (bit == first_) {
    size_ += count;
    return;
  }
  all_equal_ = false;
  push_run(first_, std::exchange(size_, 0));
  push_run(bit, count);
}

void BitBuffer::push(bool bit) {
  last_ = static_cast<std::uint8_t>(last_ | unsigned{bit} << size_ % 8);
  if (++size_ % 8 == 0) bytes_.append(std::exchange(last_, std::uint8_t{0}));
}

void BitBuffer::push_run(bool bit, std::uint64_t count) {
  for (; count > 0 && (size_ % 8 != 0 || count < 8); --count) push(bit);
  if (count == 0) return;
  if (bit) {
    put_run(std::byte{0xFF}, count / 8, [this](Bytes ones) { bytes_.append(ones); });
  } else {
    bytes_.append_zeros(count / 8);
  }
  size_ += count / 8 * 8;
  for (count %= 8; count > 0; --count) push(bit);
}

void BitBuffer::write(const ByteSink& sink) const {
  std::uint8_t last = last_;
  if (all_equal_) {
    put_run(first_ ? std::byte{0xFF} : std::byte{0}, size_ / 8, sink);
    last = first_ ? static_cast<std::uint8_t>((1U << size_ % 8) - 1) : std::uint8_t{0};
  } else {
    bytes_.write(sink);
  }
  if (size_ % 8 != 0) sink(std::as_bytes(std::span(&last, 1)));
}

}  // namespace onecopy::records
