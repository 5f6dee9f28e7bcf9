// Where a store is when nobody says where: a folder of this user, on this machine.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace onecopy {

enum class Place : std::uint8_t {
  disk,    // $ONECOPY_CACHE, else $XDG_CACHE_HOME/onecopy, else ~/.cache/onecopy
  memory,  // /dev/shm/onecopy-<user>, or onecopy-<user>-1, ... where another user has taken the name
};

struct DefaultFolder {
  std::filesystem::path path;
  std::string reason;    // a sentence
  std::string obstacle;  // why it is not the one that it would be; empty: it is
};

// On a network file system, where locks cannot be relied on and every machine would write, the folder for the disk is
// /var/tmp/onecopy-<user> instead, or likewise -1, ...
DefaultFolder default_folder(Place place);

// Whether a folder, or the one that it would be made in, is on a disk or in memory.
Place place_of(const std::filesystem::path& folder);

}  // namespace onecopy
