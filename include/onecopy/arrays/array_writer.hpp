// Writing a file of named arrays as it is laid out: in one stream, with no more than 16 MiB held.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "onecopy/base/bytes.hpp"
#include "onecopy/files/atomic_writer.hpp"
#include "onecopy/formats/layout.hpp"

namespace onecopy {

// Give the bytes of every array in the order of `layout().placements()`, leaving out the fillers, then commit.
class ArrayWriter {
 public:
  ArrayWriter(const std::filesystem::path& path, Layout layout);

  const Layout& layout() const& noexcept ONECOPY_LIFETIMEBOUND { return layout_; }
  const Layout& layout() const&& = delete;

  // The next bytes, in pieces of any size. Throws OsError; FormatError for more than was laid out.
  void write(Bytes bytes);

  // Throws OsError; FormatError for less than was laid out. The target is then what it was before.
  void commit();

 private:
  void skip_fillers();
  void put(Bytes bytes);
  void checksum(Bytes bytes);

  Layout layout_;
  AtomicWriter file_;
  std::vector<std::uint32_t> blocks_;
  std::size_t next_ = 0;    // the placement being written
  std::uint64_t left_ = 0;  // of it, bytes
};

struct NamedArray {
  ArraySpec spec;
  Bytes bytes;
};

// All at once, for arrays that are in memory. Throws OsError and FormatError.
void save(const std::filesystem::path& path, std::span<const NamedArray> arrays, const LayoutOptions& options = {});

}  // namespace onecopy
