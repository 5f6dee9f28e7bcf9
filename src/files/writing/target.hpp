// The target of a new file: the last steps of every file that is written.
//
// The folder is opened once, and all steps are relative to the opened folder, even if its path changes meanwhile.
#pragma once

#include <filesystem>
#include <string>

#include "os/os.hpp"

namespace onecopy {

class Target {
 public:
  // Follows symbolic links of this user and of root: a link that another user placed in a shared folder must not choose
  // which file is replaced. Throws OsError before anything is written: no folder, no permission, or a folder, a device
  // or another user's link in the target's place.
  explicit Target(const std::filesystem::path& asked);

  // In an open folder, which `path` names in errors. A link in the target's place is replaced.
  Target(int folder, std::filesystem::path path);

  // A file that is being written. Locked as long as its writer lives.
  struct NewFile {
    os::Fd fd;
    std::string hidden;  // its name so far, known to this writer alone; empty: none
  };

  // Without a name where the file system has such files, else with a hidden one and mode 0600. Throws OsError.
  NewFile create() const;

  // Removes hidden files that dead writers of this target left behind.
  void sweep() const;

  // Puts a flushed file in the target's place, and replaces what is there. Return errno; the target is then unchanged,
  // a nameless file still has no name, and a hidden one keeps its name.
  int put_nameless(int fd) const;
  int put_hidden(const NewFile& file, unsigned permissions) const;

  void remove(const NewFile& file) const noexcept;  // its hidden name, if it has one

  // The new file is in place; without this it might be the old one again after a power cut. Throws OsError.
  void flush_folder() const;

  int folder() const noexcept { return folder_.get(); }

  [[noreturn]] void fail(const char* operation, int error, std::string detail = {}) const;

 private:
  void check() const;
  os::Name at(const std::string& name) const { return {folder(), name}; }
  int why_not_here() const;  // errno: its path leads elsewhere by now
  template <class Try>
  int find_hidden_name(const Try& take) const;

  std::filesystem::path path_;
  bool by_path_ = true;  // opened by its path, and must still be found there
  os::Fd folder_;
  std::string name_;
  std::string prefix_;  // of its hidden names
};

// The hidden file of that name, locked, if its writer is dead; else none. It may then be removed by that name.
os::Fd lock_abandoned(const os::Name& hidden) noexcept;

}  // namespace onecopy
