// A writer of a new file that appears complete or not at all.
//
//     AtomicWriter writer("index.oc", total_bytes);   // ENOSPC here, not after an hour
//     writer.write(bytes);                            // as often as you like
//     writer.commit();                                // flushed, then renamed over the target
//
// Until commit() the target is unchanged. A writer that is destroyed or whose process ends leaves nothing behind;
// without O_TMPFILE, and between the last two steps of commit, it leaves one hidden `.onecopy-...` file, which the next
// writer removes. After a system error the file is abandoned, and every further call fails. Processes that have the old
// file open keep it. One thread at a time.
//
// commit() flushes to the disk, then renames the file over the target. Throws OsError; the target is then the old file,
// except after "flush folder of", where it is the new file, which a power cut might still undo.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>

#include "onecopy/base/bytes.hpp"
#include "onecopy/files/file_writer.hpp"

namespace onecopy {

class Target;

struct WriteOptions {
  bool durable = true;       // false: after a power cut the new file may be complete, empty, or contain zeros
  unsigned permissions = 0;  // such as 0600; 0: as the umask permits
};

class AtomicWriter final : public FileWriter {
 public:
  // Reserves `size` bytes on the disk where the file system supports it. Symbolic links in the target's place are
  // followed unless another user owns them. Throws OsError (no folder, no permission, no space, a link of another
  // user).
  AtomicWriter(const std::filesystem::path& target, std::uint64_t size, WriteOptions options = {});
  AtomicWriter(Target target, std::uint64_t size, WriteOptions options);  // in an open folder: for the store

 private:
  class State;
};

}  // namespace onecopy
