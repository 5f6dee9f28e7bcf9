// A file that no folder has: filled once, sealed, and opened by every process that is given its descriptor.
//
//     MemoryFileWriter writer("index", bytes.size());   // ENOMEM or ENOSPC here, and never SIGBUS later
//     writer.write(bytes);
//     writer.commit();                                  // sealed: nobody can write, grow or shorten it any more
//     const Mapping index = writer.open();              // index.descriptor() is what other processes are given
//
// Another process opens it by `Mapping::from_descriptor`, where it inherits the descriptor or receives it over a socket
// (SCM_RIGHTS), or by the path /proc/<pid>/fd/<descriptor>, as long as the user is the same. The memory goes with the
// last mapping and the last descriptor, in whatever order processes end; there is nothing to clean up.
//
// Linux only, by memfd_create. Where there is none (other systems, sandboxes) it is an unnamed file in /dev/shm or in
// the folder for temporary files, which nothing seals: `reason()` and `Mapping::sealed()` say so.
//
// The file counts as memory of the control group that wrote it. It comes in 4 KiB pages; `collapse` makes them 2 MiB.
// One thread at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "onecopy/base/bytes.hpp"
#include "onecopy/files/file_writer.hpp"
#include "onecopy/files/mapping.hpp"

namespace onecopy {

class MemoryFileWriter final : public FileWriter {
 public:
  // `name` stands in errors and in /proc/<pid>/maps; it leads nowhere. All memory is reserved now: throws OsError where
  // less may be used (ENOMEM), or where the place is full (ENOSPC).
  // With a folder it is an unnamed file there instead, for what is too big to be kept in memory.
  MemoryFileWriter(std::string name, std::uint64_t size, const std::filesystem::path& folder = {});

  MemoryFileWriter(MemoryFileWriter&&) noexcept;
  MemoryFileWriter& operator=(MemoryFileWriter&&) noexcept;
  ~MemoryFileWriter() override;

  // Not through a mapping: as long as there is a writable one, the kernel does not seal.
  void write(Bytes bytes) override;
  void overwrite(std::uint64_t offset, Bytes bytes) override;
  std::uint64_t written() const noexcept override;

  // Seals the file where it can be sealed. The descriptor cannot write from here on. Throws OsError.
  void commit() override;

  // After commit. The Mapping has a descriptor of its own and may outlive the writer. Throws OsError.
  Mapping open(const MappingOptions& options = {}) const;

  const std::string& name() const& noexcept ONECOPY_LIFETIMEBOUND;
  int descriptor() const noexcept;  // stays ours; after commit for readers only
  std::string reason() const;       // a sentence: where the bytes are, and what keeps them as they are

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace onecopy
