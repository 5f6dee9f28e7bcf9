#include "scratch/place.hpp"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>

#include "files/writing/nameless.hpp"
#include "onecopy/base/error.hpp"
#include "onecopy/files/available_memory.hpp"

namespace onecopy {
namespace {

constexpr const char* making = "make a scratch file";

// The file system of a folder; empty where it is unknown.
std::optional<os::FileSystem> system_of(const std::string& folder) {
  const auto fd = os::open_read(folder);
  if (!fd) return std::nullopt;
  const auto system = os::file_system_of(fd.value.get());
  return system ? std::optional(system.value) : std::nullopt;
}

std::string no_space(std::uint64_t size, const os::Result<std::uint64_t>& free) {
  std::string text = "no space: " + std::to_string(size) + " bytes are needed";
  if (free) text += ", but only " + std::to_string(free.value) + " are free";
  return text;
}

void reserve_in(const PlacedFile& file, std::uint64_t size) {
  const auto& folder = file.place.folder;
  if (file.in_memory) expect_memory(size, making, folder, "choose a folder on a disk");
  const auto free = os::free_space(file.fd.get());
  const int error = reserve(file.fd.get(), size, file.in_memory ? reserved_at_once : size);
  if (error == 0) return;
  if (error == EOPNOTSUPP)
    throw OsError(making, folder, error,
                  "its file system cannot reserve space: choose another folder, or do not reserve space, in which case "
                  "writing to a full "
                  "disk ends the process (SIGBUS)");
  throw OsError(making, folder, error, error == ENOSPC || error == EDQUOT ? no_space(size, free) : std::string());
}

void refuse_obstacles(const std::string& folder, const std::optional<os::FileSystem>& system) {
  const std::string obstacle = system ? obstacle_of(*system) : std::string();
  if (obstacle.empty()) return;
  throw OsError(making, folder, EOPNOTSUPP,
                obstacle +
                    ": choose a folder on a local disk (with the option `dir` or $ONECOPY_SCRATCH), or allow any file "
                    "system (the option 'anywhere')");
}

}  // namespace

std::string obstacle_of(const os::FileSystem& system) {
  const std::string name = system.name;
  switch (system.storage) {
    case os::Storage::memory: return "it is on " + name + ", which is in memory instead of on disk";
    case os::Storage::remote: return "it is on " + name + ", where a server or another program handles every page";
    case os::Storage::local: break;
  }
  return {};
}

ScratchFolder default_place(const Environment& environment) {
  if (!environment.scratch.empty()) return {environment.scratch, "the folder of $ONECOPY_SCRATCH"};
  const std::string& temporary = environment.temporary;
  if (std::error_code error; !std::filesystem::is_directory(temporary, error))
    return {"/var/tmp", "/var/tmp, because there is no folder for temporary files"};
  const auto system = system_of(temporary);
  const std::string obstacle = system ? obstacle_of(*system) : std::string();
  if (obstacle.empty()) return {temporary, "the folder for temporary files"};
  return {"/var/tmp", "/var/tmp, because of " + temporary + ": " + obstacle};
}

PlacedFile create_placed(std::uint64_t size, const ScratchOptions& options) {
  PlacedFile file;
  file.place = options.folder.empty() ? default_place(options.environment)
                                      : ScratchFolder{options.folder.string(), "the folder of the options"};
  const auto& folder = file.place.folder;
  const auto system = system_of(folder);
  if (!options.anywhere) refuse_obstacles(folder, system);
  file.in_memory = system && system->storage == os::Storage::memory;
  const auto opened = os::open_folder(folder);
  if (!opened) throw OsError(making, folder, opened.error);
  auto made = os::create_unnamed(opened.value.get());
  file.linkable = made && os::can_link_unnamed(made.value.get());
  if (made.error == EOPNOTSUPP) made = create_nameless(opened.value.get());
  if (!made) throw OsError(making, folder, made.error);
  file.fd = std::move(made.value);
  if (options.reserve) reserve_in(file, size);
  if (const int error = os::set_size(file.fd.get(), size); error != 0) throw OsError(making, folder, error);
  return file;
}

}  // namespace onecopy
