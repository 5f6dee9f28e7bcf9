// The default folder of a store: a folder of this user, on this machine.
//
// Creates nothing. If the preferred folder cannot be used, this is no error: `obstacle` states the reason. Threads:
// any.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "onecopy/base/environment.hpp"

namespace onecopy {

enum class Place : std::uint8_t {
  disk,    // $ONECOPY_CACHE, else $XDG_CACHE_HOME/onecopy, else ~/.cache/onecopy
  memory,  // /dev/shm/onecopy-<user>, or onecopy-<user>-1, ... where another user has the name
};

struct DefaultFolder {
  std::filesystem::path path;
  std::string reason;    // a sentence
  std::string obstacle;  // why the preferred folder is unusable; empty: the preferred folder is used
};

// If the folder for the disk is on a network file system, where locks are unreliable and every machine would write,
// /var/tmp/onecopy-<user> is used instead, or likewise -1, ...
DefaultFolder default_folder(Place place, const Environment& environment = Environment::now());

// Whether a folder, or its nearest existing parent, is on a disk or in memory.
Place place_of(const std::filesystem::path& folder);

}  // namespace onecopy
