// A private folder that is kept open, and the files in it.
//
// A process that may write the parent folder can replace a folder at any moment. Therefore a store opens its folder,
// checks the opened folder, and does all its work relative to it: every file found belongs to the owner, or is refused.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "onecopy/store/store.hpp"
#include "os/os.hpp"

namespace onecopy::store {

class Folder {
 public:
  // Creates the folder and its parents with mode 0700 where they are missing (a shared one with 0750). Throws OsError
  // unless it is a folder, not a symbolic link, owned by this user, without access for other users; with `users`, owned
  // by that user, or such that others may read it and not write.
  static Folder open(const std::filesystem::path& path, const StoreUsers& users = {});

  int descriptor() const noexcept { return fd_->get(); }
  const std::filesystem::path& path() const noexcept { return path_; }
  std::uint64_t owner() const noexcept { return owner_; }
  bool is_own() const noexcept { return owner_ == os::user_id(); }
  unsigned readers() const noexcept;  // now: 040 if its group may read it, 04 if all may

 private:
  Folder(os::Fd fd, std::filesystem::path path, const os::FileFacts& facts)
      : fd_(std::make_shared<const os::Fd>(std::move(fd))), path_(std::move(path)), owner_(facts.owner) {}

  std::shared_ptr<const os::Fd> fd_;
  std::filesystem::path path_;
  std::uint64_t owner_;
};

// A name in a folder that all users may write. Another user can create NAME first; then NAME-1, NAME-2, ... are tried.
// The result is the first one that Folder::open accepts, even if earlier ones are free again, else the first free one.
// If the folder is to be shared, a folder of the owner is accepted whatever its mode. The text states why NAME is not
// used, and is empty if nothing is in its way.
std::pair<std::filesystem::path, std::string> choose_name(const std::filesystem::path& name,
                                                          const StoreUsers& users = {});

// A name in the folder; there may be no such file.
struct File {
  Folder folder;
  std::string name;

  os::Name at() const { return {folder.descriptor(), name}; }
  std::filesystem::path path() const { return folder.path() / name; }  // for messages
};

[[noreturn]] void fail(const File& file, const char* operation, int error, std::string detail = {});  // OsError

// The facts of a regular file of the owner of its folder; none if it does not exist. Throws OsError for anything else.
os::Result<os::FileFacts> facts_of_ours(const File& file);

// Whether no other user could have changed the file: none may write it, and it has no second name.
bool is_ours_alone(const os::FileFacts& facts) noexcept;

// The file, opened. None if it does not exist, or is not ours alone. Throws OsError as facts_of_ours.
os::Fd open_ours(const File& file);

// Throws OsError, but for ENOENT.
void remove_if_there(const File& file);

}  // namespace onecopy::store
