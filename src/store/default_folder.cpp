#include "onecopy/store/default_folder.hpp"

#include <cerrno>
#include <utility>

#include "os/os.hpp"
#include "store/folder.hpp"

namespace onecopy {
namespace {

namespace fs = std::filesystem;

// The file system of the folder, or of the nearest one above it that exists.
os::FileSystem file_system_at(fs::path folder) {
  for (;;) {
    const auto opened = os::open_read(folder.string());
    if (opened) return os::file_system_of(opened.value.get()).value;
    auto above = folder.parent_path();
    if (above == folder || above.empty()) return {};
    folder = std::move(above);
  }
}

// Whether this user may create files in a folder, or in the nearest one above it that exists.
bool can_be_written(fs::path folder) {
  for (;;) {
    const int error = os::why_not_writable(folder.string());
    auto above = folder.parent_path();
    if (error != ENOENT || above == folder || above.empty()) return error == 0;
    folder = std::move(above);
  }
}

DefaultFolder in_folder_for_all(const char* folder, std::string reason) {
  auto [path, obstacle] = store::choose_name(fs::path(folder) / ("onecopy-" + std::to_string(os::user_id())));
  return {std::move(path), std::move(reason), std::move(obstacle)};
}

DefaultFolder on_this_machine(std::string reason) { return in_folder_for_all("/var/tmp", std::move(reason)); }

DefaultFolder wished_for(const Environment& environment) {
  if (!environment.cache.empty()) return {environment.cache, "$ONECOPY_CACHE", {}};
  const fs::path cache = environment.user_caches;
  if (cache.is_absolute()) return {cache / "onecopy", "$XDG_CACHE_HOME", {}};  // a relative one is to be ignored
  const fs::path home = environment.home;
  if (!home.is_absolute()) return on_this_machine("there is no home folder");
  auto folder = home / ".cache" / "onecopy";
  if (!can_be_written(folder)) return on_this_machine(folder.string() + " cannot be written");
  return {std::move(folder), "the user's cache folder", {}};
}

}  // namespace

DefaultFolder default_folder(Place place, const Environment& environment) {
  if (place == Place::memory) return in_folder_for_all("/dev/shm", "the machine's file system in memory");
  auto folder = wished_for(environment);
  const auto facts = file_system_at(fs::absolute(folder.path));
  if (facts.storage != os::Storage::remote) return folder;
  return on_this_machine(folder.path.string() + " is on a network file system (" + facts.name + ")");
}

Place place_of(const fs::path& folder) {
  return file_system_at(fs::absolute(folder)).storage == os::Storage::memory ? Place::memory : Place::disk;
}

}  // namespace onecopy
