// CRC-32C of the data section in blocks, as onecopy's writer stores them, for verification.
//
// Immutable: any thread may use it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "onecopy/base/bytes.hpp"

namespace onecopy {

// Blocks are cut at multiples of the block size of the *file*, over the data section, so that they coincide with the
// pieces that are read and with 2 MiB pages.
class BlockChecksums {
 public:
  BlockChecksums() = default;  // the file has none

  // `data` is the data section in the file, `block` a power of two; one checksum for each block that overlaps it.
  BlockChecksums(ByteRange data, std::uint64_t block, std::vector<std::uint32_t> checksums) noexcept
      : data_(data), block_(block), checksums_(std::move(checksums)) {}

  static constexpr std::uint64_t count(ByteRange data, std::uint64_t block) noexcept {
    return data.length == 0 ? 0 : (data.offset + data.length - 1) / block - data.offset / block + 1;
  }

  bool present() const noexcept { return block_ != 0; }
  std::size_t size() const noexcept { return checksums_.size(); }
  std::uint32_t expected(std::size_t number) const noexcept { return checksums_[number]; }

  // The range of a block in the file; the first and the last may be shorter than the others.
  ByteRange range(std::size_t number) const noexcept {
    const std::uint64_t cut = (data_.offset / block_ + number) * block_;
    const std::uint64_t begin = std::max(cut, data_.offset);
    return {begin, std::min(cut + block_, data_.offset + data_.length) - begin};
  }

  // The blocks that hold bytes of `range`, which lies in the file: [first, last).
  std::pair<std::size_t, std::size_t> covering(ByteRange range) const noexcept {
    const std::uint64_t begin = std::max(range.offset, data_.offset);
    const std::uint64_t end = std::min(range.offset + range.length, data_.offset + data_.length);
    if (begin >= end) return {0, 0};
    const std::uint64_t first = data_.offset / block_;
    return {begin / block_ - first, (end - 1) / block_ - first + 1};
  }

 private:
  ByteRange data_;
  std::uint64_t block_ = 0;
  std::vector<std::uint32_t> checksums_;
};

}  // namespace onecopy
