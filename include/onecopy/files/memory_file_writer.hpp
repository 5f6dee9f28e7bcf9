// A file without a folder: filled once, sealed, and opened by every process that receives its descriptor.
//
//     MemoryFileWriter writer("index", bytes.size());   // ENOMEM or ENOSPC here, never SIGBUS later
//     writer.write(bytes);
//     writer.commit();                                  // sealed: no process can write, grow or shorten it
//     const Mapping index = writer.open();              // pass index.descriptor() to other processes
//
// Another process opens it by `Mapping::from_descriptor` with a descriptor that it inherits or receives over a socket
// (SCM_RIGHTS), or by the path /proc/<pid>/fd/<descriptor> if it runs as the same user. The memory is freed with the
// last mapping and the last descriptor, in whatever order processes end; there is nothing to clean up.
//
// Linux only, by memfd_create. Elsewhere (other systems, sandboxes) it is an unnamed file in /dev/shm, or in the folder
// for temporary files where there is no /dev/shm, which cannot be sealed: `reason()` and `Mapping::sealed()` report it.
//
// commit() seals the file where that is supported; the descriptor cannot write afterwards. Bytes do not go through a
// mapping: the kernel does not seal a file with a writable one.
//
// The memory is charged to the control group of the writer. It consists of small pages; `collapse` makes them 2 MiB.
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
  // `name` appears in errors and in /proc/<pid>/maps; it is not a path. All memory is reserved at construction: throws
  // OsError where less memory is available (ENOMEM) or the file system is full (ENOSPC). With a folder, it is an
  // unnamed file there instead, for data that is too large for memory.
  MemoryFileWriter(std::string name, std::uint64_t size, const std::filesystem::path& folder = {});

  // Only after commit. The Mapping has a descriptor of its own and may outlive the writer. Throws OsError.
  Mapping open(const MappingOptions& options = {}) const;

  const std::string& name() const& noexcept ONECOPY_LIFETIMEBOUND;
  int descriptor() const noexcept;  // owned by the writer; read-only after commit
  std::string reason() const;       // a sentence: where the bytes are, and whether they are sealed

 private:
  class State;
  const State& state() const noexcept;
};

}  // namespace onecopy
