// A file that is being written, on a disk (`AtomicWriter`) or in memory (`MemoryFileWriter`).
#pragma once

#include <cstdint>

#include "onecopy/base/bytes.hpp"

namespace onecopy {

// The size is announced at construction. One thread at a time.
class FileWriter {
 public:
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;
  virtual ~FileWriter() = default;

  virtual void write(Bytes bytes) = 0;  // appends

  // Replaces bytes that were written before (a header whose contents are known last).
  virtual void overwrite(std::uint64_t offset, Bytes bytes) = 0;

  virtual std::uint64_t written() const noexcept = 0;

  // The last call: the file is complete afterwards. Throws OsError also if more or fewer bytes were written than
  // announced.
  virtual void commit() = 0;

 protected:
  FileWriter() = default;
  FileWriter(FileWriter&&) noexcept = default;
  FileWriter& operator=(FileWriter&&) noexcept = default;
};

}  // namespace onecopy
