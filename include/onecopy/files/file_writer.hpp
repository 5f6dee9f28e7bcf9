// A file that is being written, wherever that is: on a disk (`AtomicWriter`) or in memory (`MemoryFileWriter`).
#pragma once

#include <cstdint>

#include "onecopy/base/bytes.hpp"

namespace onecopy {

// The size is announced when it is made. One thread at a time.
class FileWriter {
 public:
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;
  virtual ~FileWriter() = default;

  virtual void write(Bytes bytes) = 0;  // appends

  // Replaces bytes that were written before (a header that is known last).
  virtual void overwrite(std::uint64_t offset, Bytes bytes) = 0;

  virtual std::uint64_t written() const noexcept = 0;

  // The last call: the file is whole from here on. Throws OsError also where more or less was written than announced.
  virtual void commit() = 0;

 protected:
  FileWriter() = default;
  FileWriter(FileWriter&&) noexcept = default;
  FileWriter& operator=(FileWriter&&) noexcept = default;
};

}  // namespace onecopy
