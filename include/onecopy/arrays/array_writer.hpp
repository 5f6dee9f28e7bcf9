// Writes a file of named arrays in the order of its layout, in one stream, with at most 16 MiB in memory.
//
// The layout is known before the first byte, because the header comes first and contains every offset. So arrays are
// written in its order, checksums are computed in the same pass, and the target appears complete or not at all: see
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

// Write the bytes of every array except the fillers in the order of `layout().placements()`, then commit.
class ArrayWriter {
 public:
  // Writes to a disk, and replaces `path`.
  ArrayWriter(const std::filesystem::path& path, Layout layout, WriteOptions options = {});

  // Writes to a writer of `layout.file_size()` bytes, such as a MemoryFileWriter, which must outlive this one.
  ArrayWriter(FileWriter& file, Layout layout);

  const Layout& layout() const& noexcept ONECOPY_LIFETIMEBOUND { return layout_; }
  const Layout& layout() const&& = delete;

  // Writes the next bytes, in pieces of any size. Throws OsError; FormatError for more bytes than the layout has.
  void write(Bytes bytes);

  // Throws OsError; FormatError for fewer bytes than the layout has. The target at a path is then unchanged.
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

// Writes a memory file (see MemoryFileWriter), seals it and opens it. Pass its descriptor, `mapping()->descriptor()`,
// to other processes; `collapse(*mapping())` puts it into 2 MiB pages.
ArrayFile save_to_memory(const std::string& name, std::span<const NamedArray> arrays,
                         const LayoutOptions& options = {});

}  // namespace onecopy
