// The values of a column before they are written: the last ones in memory, the others in the spool, in pieces.
//
// Widths are decided at the end: each piece of integers is spooled in the narrowest width that holds it, and written in
// the narrowest width that holds all of them; bits that are all equal are only counted. Zeros are counted, too: a field
// that first appears after a million rows uses no space for those rows.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "files/writing/spool.hpp"
#include "onecopy/base/bytes.hpp"
#include "onecopy/base/dtype.hpp"
#include "records/building/tensor.hpp"

namespace onecopy::records {

static_assert(std::endian::native == std::endian::little,
              "files hold little-endian numbers, which are copied as they are");

inline constexpr std::size_t tail_bytes = std::size_t{64} << 10U;  // of a buffer, in memory

class ByteBuffer {
 public:
  explicit ByteBuffer(Spool& spool) : spool_(&spool) {}

  void append(Bytes bytes) {
    if (bytes.size() > tail_.size() - used_) [[unlikely]]
      return append_beyond(bytes);
    std::ranges::copy(bytes, tail_.begin() + static_cast<std::ptrdiff_t>(used_));
    used_ += bytes.size();
  }

  template <class Number>
    requires std::integral<Number> || std::floating_point<Number>
  void append(Number number) {
    append(std::as_bytes(std::span<const Number, 1>(&number, 1)));
  }

  void append_zeros(std::uint64_t count);

  std::uint64_t size() const noexcept { return spooled_ + used_; }
  void write(const ByteSink& sink) const;

 private:
  static constexpr std::uint64_t zeros = UINT64_MAX;  // for Piece::offset: zeros are not stored

  struct Piece {
    std::uint64_t offset;
    std::uint64_t length;
  };

  void append_beyond(Bytes bytes);
  void flush();
  void add_piece(Piece piece);

  Spool* spool_;
  std::vector<Piece> pieces_;
  std::uint64_t spooled_ = 0;    // bytes in the pieces
  std::vector<std::byte> tail_;  // the last ones
  std::size_t used_ = 0;
};

// The bounds of a set of integers.
struct IntegerRange {
  std::int64_t lowest = 0;
  std::int64_t highest = 0;

  DType narrowest() const noexcept;
};

class IntegerBuffer {
 public:
  using Map = std::function<std::int64_t(std::int64_t)>;
  using Visit = std::function<void(std::span<const std::int64_t>)>;

  explicit IntegerBuffer(Spool& spool) : spool_(&spool) {}

  void append(std::int64_t value) {
    if (tail_.size() == most) [[unlikely]]
      flush();
    tail_.push_back(value);
  }

  void append_zeros(std::uint64_t count);

  std::uint64_t size() const noexcept { return spooled_ + tail_.size(); }
  IntegerRange range() const noexcept;      // zero is always in it
  void for_each(const Visit& visit) const;  // all, in order, some thousands at a time

  // Writes `map` of each integer, as signed or unsigned integers that hold the results.
  void write_as(DType dtype, const ByteSink& sink, const Map& map = std::identity()) const;
  void write_sums(DType dtype, const ByteSink& sink) const;  // 0, and the sums of the first 1, 2, ... of them
  void clear() noexcept;                                     // as new; spooled bytes stay in the spool

 private:
  static constexpr std::size_t most = tail_bytes / sizeof(std::int64_t);

  struct Piece {
    std::uint64_t offset;
    std::uint64_t count;
    DType dtype;
    bool zeros;  // zeros are not stored
  };

  void flush();

  Spool* spool_;
  std::vector<Piece> pieces_;
  std::uint64_t spooled_ = 0;  // integers in the pieces
  IntegerRange spooled_range_;
  std::vector<std::int64_t> tail_;
};

// The narrowest type of offsets up to `total`.
constexpr DType offset_type(std::uint64_t total) noexcept { return total <= INT32_MAX ? DType::i32 : DType::i64; }

// Least significant bit first.
class BitBuffer {
 public:
  explicit BitBuffer(Spool& spool) : bytes_(spool) {}

  void append(bool bit) {
    if (all_equal_ && bit == first_) [[likely]] {
      ++size_;
    } else {
      append(bit, 1);
    }
  }

  void append(bool bit, std::uint64_t count);

  std::uint64_t size() const noexcept { return size_; }
  std::uint64_t byte_size() const noexcept { return (size_ + 7) / 8; }
  bool all_ones() const noexcept { return size_ == 0 || (all_equal_ && first_); }
  void write(const ByteSink& sink) const;

 private:
  void push(bool bit);
  void push_run(bool bit, std::uint64_t count);

  ByteBuffer bytes_;  // whole ones; none while all bits are alike
  std::uint64_t size_ = 0;
  std::uint8_t last_ = 0;  // the byte that is not whole
  bool first_ = true;
  bool all_equal_ = true;
};

}  // namespace onecopy::records
