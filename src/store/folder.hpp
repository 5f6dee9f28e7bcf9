// A folder that is its owner's alone, and files in it that are the owner's too.
#pragma once

#include <filesystem>
#include <string>

#include "os/os.hpp"

namespace onecopy::store {

// Makes the folder where it is missing. Throws OsError unless it is a folder, no symbolic link, of this user, and
// nobody else may enter it.
void prepare_folder(const std::filesystem::path& folder);

// What is at a path: none, or a regular file of this user. Throws OsError for anything else.
os::Result<os::FileFacts> facts_of_ours(const std::filesystem::path& path);

// Throws OsError, but for ENOENT.
void remove_if_there(const std::filesystem::path& path);

}  // namespace onecopy::store
