// Rows of values in a scratch file, for writing images and matrices.
//
//     Scratch<std::uint16_t> canvas({40'000, 40'000}, {.max_resident = std::uint64_t{512} << 20U});
//     for (std::size_t y = 0; y < canvas.rows(); ++y) paint(canvas.row(y));
//     canvas.release_rows(0, 4096);                 // to the disk, and out of memory
//     const Mapping image = canvas.seal();
#pragma once

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>

#include "onecopy/base/bytes.hpp"
#include "onecopy/base/error.hpp"
#include "onecopy/scratch/scratch_file.hpp"

namespace onecopy {

struct RowShape {
  std::size_t rows = 0;
  std::size_t columns = 0;  // values in a row
};

// Threads and lifetimes: see ScratchFile. The rows are contiguous.
template <class T>
  requires std::is_trivially_copyable_v<T>
class Scratch {
 public:
  // Creates rows of zeros. Throws OsError: as ScratchFile::create, and EOVERFLOW if the size in bytes overflows.
  explicit Scratch(RowShape shape, const ScratchOptions& options = {})
      : shape_(shape), file_(ScratchFile::create(byte_size(shape, options), options)) {}

  std::size_t rows() const noexcept { return shape_.rows; }
  std::size_t columns() const noexcept { return shape_.columns; }

  // Requires y < rows().
  std::span<T> row(std::size_t y) & noexcept ONECOPY_LIFETIMEBOUND {
    return {first() + y * shape_.columns, shape_.columns};
  }
  std::span<T> row(std::size_t y) && = delete;  // would dangle

  std::span<T> values() & noexcept ONECOPY_LIFETIMEBOUND { return {first(), shape_.rows * shape_.columns}; }
  std::span<T> values() && = delete;

  // Observes max_resident. `from`: whole rows, copied to row y and the rows behind it. Throws OsError.
  void write_rows(std::size_t y, std::span<const T> from) { file_.copy_in(y * row_bytes(), std::as_bytes(from)); }

  // Rows [first, last). Requires first <= last <= rows().
  ReleaseReport release_rows(std::size_t first, std::size_t last) {
    return file_.release(std::array{range(first, last)});
  }
  WarmReport prefetch_rows(std::size_t first, std::size_t last) const {
    return file_.prefetch(std::array{range(first, last)});
  }

  void flush() { file_.flush(); }
  ScratchMemory memory() const { return file_.memory(); }
  Mapping seal() { return file_.seal(); }

  ScratchFile& file() & noexcept ONECOPY_LIFETIMEBOUND { return file_; }
  ScratchFile& file() && = delete;

 private:
  static std::uint64_t byte_size(RowShape shape, const ScratchOptions& options) {
    std::uint64_t size = 0;
    if (__builtin_mul_overflow(shape.rows, shape.columns, &size) || __builtin_mul_overflow(size, sizeof(T), &size))
      throw OsError("make a scratch file", options.name, EOVERFLOW, "the size in bytes exceeds 64 bits");
    return size;
  }
  // A mapping starts on a page, which is aligned for every T that can be copied as bytes.
  T* first() noexcept { return reinterpret_cast<T*>(file_.bytes().data()); }
  std::uint64_t row_bytes() const noexcept { return std::uint64_t{shape_.columns} * sizeof(T); }
  ByteRange range(std::size_t first, std::size_t last) const noexcept {
    return {first * row_bytes(), (last - first) * row_bytes()};
  }

  RowShape shape_;
  ScratchFile file_;
};

}  // namespace onecopy
