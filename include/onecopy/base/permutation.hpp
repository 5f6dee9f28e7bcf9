// A pseudo-random permutation of 0 ... size-1 that is computed, not stored: shuffling a billion indices takes 80 bytes.
//
// A Feistel network (Luby and Rackoff, 1988) permutes the next power of two, 256 at least: the bits of a position are
// cut into halves, and in each of 8 rounds one half is XORed with a keyed mix of the other. A result outside the range
// is permuted again until it is inside ("cycle walking", Black and Rogaway, 2002): fewer than two passes on average
// from size 129 on. Mix and keys are those of SplitMix64 (Steele, Lea and Flood, 2014), whose finalizer is variant 13
// of Stafford. The result is part of the interface: the same size, seed and epoch give the same order on every machine
// and in every version.
//
// For sampling, not for cryptography. Immutable: any number of threads may call it at once.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>

namespace onecopy {

class Permutation {
 public:
  constexpr Permutation(std::uint64_t size, std::uint64_t seed, std::uint64_t epoch) noexcept : size_(size) {
    const int bits = std::max(8, static_cast<int>(std::bit_width(size - (size != 0 ? 1U : 0U))));
    right_bits_ = bits / 2;
    left_mask_ = (std::uint64_t{1} << (bits - right_bits_)) - 1;
    right_mask_ = (std::uint64_t{1} << right_bits_) - 1;
    std::uint64_t state = 0;
    for (const std::uint64_t word : {seed, epoch, size}) state = mix((state ^ word) + golden);
    for (std::uint64_t& key : keys_) key = mix(state += golden);
  }

  constexpr std::uint64_t size() const noexcept { return size_; }

  // The value at `position`. Requires position < size(); the result is less than size(), too.
  constexpr std::uint64_t operator[](std::uint64_t position) const noexcept {
    do position = forward(position);
    while (position >= size_);
    return position;
  }

  // The inverse: the position of `value`. Requires value < size().
  constexpr std::uint64_t index_of(std::uint64_t value) const noexcept {
    do value = backward(value);
    while (value >= size_);
    return value;
  }

  // Writes the values at positions first, first + step, ...; throws std::out_of_range if any of these is not a
  // position.
  constexpr void fill(std::uint64_t first, std::int64_t step, std::span<std::uint64_t> values) const {
    if (!reaches(first, step, values.size())) throw std::out_of_range("a position is outside of the permutation");
    for (std::uint64_t& value : values) {
      value = (*this)[first];
      first += static_cast<std::uint64_t>(step);  // modulo 2^64, so that a negative step goes down
    }
  }

 private:
  static constexpr std::uint64_t golden = 0x9E3779B97F4A7C15U;

  static constexpr std::uint64_t mix(std::uint64_t x) noexcept {
    x = (x ^ (x >> 30U)) * 0xBF58476D1CE4E5B9U;
    x = (x ^ (x >> 27U)) * 0x94D049BB133111EBU;
    return x ^ (x >> 31U);
  }

  constexpr std::uint64_t forward(std::uint64_t x) const noexcept {
    std::uint64_t left = x >> right_bits_;
    std::uint64_t right = x & right_mask_;
    for (std::size_t round = 0; round < keys_.size(); round += 2) {
      left ^= mix(right ^ keys_[round]) & left_mask_;
      right ^= mix(left ^ keys_[round + 1]) & right_mask_;
    }
    return (left << right_bits_) | right;
  }

  constexpr std::uint64_t backward(std::uint64_t x) const noexcept {
    std::uint64_t left = x >> right_bits_;
    std::uint64_t right = x & right_mask_;
    for (std::size_t round = keys_.size(); round > 0; round -= 2) {
      right ^= mix(left ^ keys_[round - 1]) & right_mask_;
      left ^= mix(right ^ keys_[round - 2]) & left_mask_;
    }
    return (left << right_bits_) | right;
  }

  // Whether `count` positions from `first` on are all in range; divides, because a product could wrap.
  constexpr bool reaches(std::uint64_t first, std::int64_t step, std::uint64_t count) const noexcept {
    if (count == 0) return true;
    if (first >= size_) return false;
    const std::uint64_t stride = step < 0 ? -static_cast<std::uint64_t>(step) : static_cast<std::uint64_t>(step);
    const std::uint64_t room = step < 0 ? first : size_ - 1 - first;
    return stride == 0 || room / stride >= count - 1;
  }

  std::uint64_t size_;
  int right_bits_ = 0;
  std::uint64_t left_mask_ = 0;
  std::uint64_t right_mask_ = 0;
  std::array<std::uint64_t, 8> keys_{};
};

}  // namespace onecopy
