// A new file that appears whole or not at all.
//
//     AtomicWriter writer("index.oc", total_bytes);   // ENOSPC here, not after an hour
//     writer.write(bytes);                            // as often as you like
//     writer.commit();                                // flushed, then renamed over the target
//
// Until commit() the target is untouched; a writer that dies or is destroyed leaves nothing (without O_TMPFILE, and in
// the instant between the two last steps of commit, one hidden `.onecopy-...` file, which the next writer sweeps).
// After an error of the system it is abandoned, and every further call fails.
// Readers of the old file keep it. One thread at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>

#include "onecopy/base/bytes.hpp"
#include "onecopy/files/file_writer.hpp"

namespace onecopy {

class Target;

struct WriteOptions {
  bool durable = true;      // false: a power cut may leave the new file whole, empty, or with zeros in it
  bool owner_only = false;  // mode 0600; else what the umask leaves
};

class AtomicWriter final : public FileWriter {
 public:
  // Reserves `size` bytes on the disk where the file system can. Symbolic links in the target's place are followed,
  // but for those of other users. Throws OsError (no folder, no permission, no space, somebody's link).
  AtomicWriter(const std::filesystem::path& target, std::uint64_t size, WriteOptions options = {});
  AtomicWriter(Target target, std::uint64_t size, WriteOptions options);  // in a folder that is open: for the store

  AtomicWriter(AtomicWriter&&) noexcept;
  AtomicWriter& operator=(AtomicWriter&&) noexcept;
  ~AtomicWriter() override;

  // Appends. Writes to the file begin and end at multiples of 2 MiB: the page cache then holds the file in 2 MiB pages,
  // and the first reader that maps it takes 137 faults instead of 4,105 per 256 MiB.
  void write(Bytes bytes) override;
  void overwrite(std::uint64_t offset, Bytes bytes) override;
  std::uint64_t written() const noexcept override;

  // Flushes to the disk, then puts the file in the target's place. Throws OsError; the target is then the old one, but
  // after "flush folder of" it is the new one, which a power cut might still undo. The sizes must agree with what was
  // announced.
  void commit() override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace onecopy
