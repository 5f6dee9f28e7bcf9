// Where a finished file is to appear: the last steps of every file that is written, whoever wrote it.
#pragma once

#include <filesystem>
#include <string>

namespace onecopy {

class Target {
 public:
  // Follows symbolic links. Throws OsError now, and not after all is written: no folder, no permission, a folder or a
  // device in the place.
  explicit Target(const std::filesystem::path& asked);

  // Removes hidden files that dead writers of this target left. A live one holds a lock on its file.
  void sweep() const;

  std::string new_hidden_name() const;  // in the folder, of this target

  // Puts the flushed file of this descriptor in the place, over what is there. `hidden` is the name that it has so far;
  // empty: none, and it gets one for an instant. Returns errno; `hidden` is then what is to be removed.
  int take_place(int fd, std::string& hidden) const;

  // The new file is in place; without this it might be the old one again after a power cut. Throws OsError.
  void flush_folder() const;

  const std::string& folder() const noexcept { return folder_; }

  [[noreturn]] void fail(const char* operation, int error, std::string detail = {}) const;

 private:
  void check() const;

  std::filesystem::path target_;
  std::string folder_;
  std::string prefix_;
};

}  // namespace onecopy
