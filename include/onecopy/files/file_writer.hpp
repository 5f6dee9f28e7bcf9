// A file that is being written, on a disk (`AtomicWriter`) or in memory (`MemoryFileWriter`).
#pragma once

#include <cstdint>
#include <memory>

#include "onecopy/base/bytes.hpp"

namespace onecopy {

// The size is announced at construction. One thread at a time.
class FileWriter {
 public:
  FileWriter(FileWriter&&) noexcept;
  FileWriter& operator=(FileWriter&&) noexcept;
  virtual ~FileWriter();

  // Appends. Writes to the file begin and end at multiples of 2 MiB: the page cache then holds the file in 2 MiB pages,
  // and the first reader that maps it takes 137 faults instead of 4,105 per 256 MiB.
  void write(Bytes bytes);

  // Replaces bytes that were written before (a header whose contents are known last).
  void overwrite(std::uint64_t offset, Bytes bytes);

  std::uint64_t written() const noexcept;

  // The last call: the file is complete afterwards. Throws OsError also if more or fewer bytes were written than
  // announced.
  void commit();

 protected:
  class State;
  explicit FileWriter(std::unique_ptr<State> state) noexcept;
  std::unique_ptr<State> state_;
};

}  // namespace onecopy
