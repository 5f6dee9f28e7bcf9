// Writing a file of named arrays as it is laid out: in one stream, with no more than 16 MiB held.
//
// The layout is known before the first byte, because the header stands in front and names every offset. So arrays are
// given in its order, checksums are taken in the same pass, and the target appears whole or not at all: see
// AtomicWriter. Threads: one at a time for one writer. A writer that is destroyed before commit leaves nothing.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "onecopy/arrays/array_file.hpp"
#include "onecopy/base/bytes.hpp"
#include "onecopy/files/atomic_writer.hpp"
#include "onecopy/files/file_writer.hpp"
#include "onecopy/formats/layout.hpp"

namespace onecopy {

// Give the bytes of every array in the order of `layout().placements()`, leaving out the fillers, then commit.
class ArrayWriter {
 public:
  // Onto a disk, in the place of `path`.
  ArrayWriter(const std::filesystem::path& path, Layout layout, WriteOptions options = {});

  // Into a writer of `layout.file_size()` bytes, which outlives this one: a MemoryFileWriter.
  ArrayWriter(FileWriter& file, Layout layout);

  const Layout& layout() const& noexcept ONECOPY_LIFETIMEBOUND { return layout_; }
  const Layout& layout() const&& = delete;

  // The next bytes, in pieces of any size. Throws OsError; FormatError for more than was laid out.
  void write(Bytes bytes);

  // Throws OsError; FormatError for less than was laid out. A path is then what it was before.
  void commit();

 private:
  void begin();
  void skip_fillers();
  void put(Bytes bytes);
  void checksum(Bytes bytes);

  Layout layout_;
  std::unique_ptr<FileWriter> owned_;  // made here, for a path
  FileWriter* file_;
  std::vector<std::uint32_t> blocks_;
  std::size_t next_ = 0;    // the placement being written
  std::uint64_t left_ = 0;  // of it, bytes
};

struct NamedArray {
  ArraySpec spec;
  Bytes bytes;
};

// Writes arrays that are in memory, all at once. Throws OsError and FormatError.
void save(const std::filesystem::path& path, std::span<const NamedArray> arrays, const LayoutOptions& options = {});

// The same into a memory file (see MemoryFileWriter): sealed, and opened. Other processes are given the descriptor,
// `mapping()->descriptor()`; `collapse(*mapping())` puts it into 2 MiB pages.
ArrayFile save_to_memory(const std::string& name, std::span<const NamedArray> arrays,
                         const LayoutOptions& options = {});

}  // namespace onecopy
