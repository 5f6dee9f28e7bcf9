// A folder that is its owner's alone, held open, and the files in it.
//
// What a path leads to may be exchanged at any moment by a process that may write the folder above. Therefore a store
// opens its folder, looks at what it has opened, and does all that it does in there: what is found is its owner's, or
// refused.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "os/os.hpp"

namespace onecopy::store {

class Folder {
 public:
  // Makes it, and those above it, with mode 0700 where they are missing. Throws OsError unless it is a folder, no
  // symbolic link, of this user, and nobody else may enter it.
  static Folder open(const std::filesystem::path& path);

  int descriptor() const noexcept { return fd_->get(); }
  const std::filesystem::path& path() const noexcept { return path_; }

 private:
  Folder(os::Fd fd, std::filesystem::path path)
      : fd_(std::make_shared<const os::Fd>(std::move(fd))), path_(std::move(path)) {}

  std::shared_ptr<const os::Fd> fd_;
  std::filesystem::path path_;
};

// Why Folder::open would refuse what is at a path; empty: it would not, or there is nothing.
std::string why_not_ours(const std::filesystem::path& path);

// A name in the folder; there may be no such file.
struct File {
  Folder folder;
  std::string name;

  os::Name at() const { return {folder.descriptor(), name}; }
  std::filesystem::path path() const { return folder.path() / name; }  // for people
};

// What is there: none, or a regular file of this user. Throws OsError for anything else.
os::Result<os::FileFacts> facts_of_ours(const File& file);

// The same of what has been opened. None where there is none, and where others might have changed it: they may write
// it, or it has a second name somewhere.
os::Fd open_ours(const File& file);

// Throws OsError, but for ENOENT.
void remove_if_there(const File& file);

}  // namespace onecopy::store
