// Where a finished file is to appear: the last steps of every file that is written.
//
// The folder is opened once, and everything is done in what was opened, whatever its path leads to afterwards.
#pragma once

#include <filesystem>
#include <string>

#include "os/os.hpp"

namespace onecopy {

class Target {
 public:
  // Follows symbolic links of this user and of root: what another user planted in a folder for all must not choose
  // which of our files is replaced. Throws OsError now, and not after all is written: no folder, no permission, a
  // folder, a device or somebody's link in the place.
  explicit Target(const std::filesystem::path& asked);

  // In a folder that is open, which `path` names for errors. A link in the place is replaced.
  Target(int folder, std::filesystem::path path);

  // A file that is being written. Locked as long as its writer lives.
  struct NewFile {
    os::Fd fd;
    std::string hidden;  // its name so far, known to nobody else; empty: none
  };

  // Without a name where the file system has such files, else with a hidden one and mode 0600. Throws OsError.
  NewFile create() const;

  // Removes hidden files that dead writers of this target left.
  void sweep() const;

  // Puts a flushed file in the place, over what is there. Return errno; the target is then what it was, and a nameless
  // file has no name. A hidden one keeps its own.
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
  bool by_path_ = true;  // it was found by its path, and is to be found so
  os::Fd folder_;
  std::string name_;
  std::string prefix_;  // of its hidden names
};

}  // namespace onecopy
