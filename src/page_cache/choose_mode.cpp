#include "onecopy/page_cache/choose_mode.hpp"

#include <algorithm>

#include "onecopy/base/error.hpp"
#include "onecopy/files/available_memory.hpp"
#include "os/os.hpp"
#include "page_cache/warm_plan.hpp"

namespace onecopy {

Conditions conditions_of(int fd, std::uint64_t device) {
  Conditions conditions;
  if (const auto memory = available_memory()) conditions.available = memory->bytes;
  if (const auto ahead = os::read_ahead(device)) conditions.read_ahead = ahead.value;
  if (const auto system = os::file_system_of(fd)) conditions.file_system = system.value;
  return conditions;
}

ModeChoice choose_mode(const Conditions& conditions) {
  const auto mapped = [](std::string why) { return ModeChoice{Mode::map, false, "mapped, because " + std::move(why)}; };
  const auto& storage = conditions.file_system;
  if (!storage) return mapped("the file system of the file is unknown");
  const std::string name = storage->name;
  if (storage->storage == os::Storage::memory) return mapped("it is in memory (" + name + ")");
  if (storage->storage == os::Storage::local) {
    auto choice = mapped("it is on a local disk, with one copy for all processes");
    // A touch then reads no more than the device would read ahead anyway, and a pass has a fault for each 2 MiB.
    const bool fits = conditions.available && !is_large(conditions.file_size, *conditions.available);
    const std::uint64_t ahead = conditions.read_ahead.value_or(0);
    choice.huge = fits && ahead >= os::huge_page;
    if (choice.huge) choice.reason += "; in 2 MiB pages, because the device reads ahead " + readable(ahead);
    return choice;
  }
  // Other processes of this machine may do the same at once: hence a quarter.
  if (conditions.available && conditions.file_size <= *conditions.available / 4)
    return {Mode::copy, false,
            "copied, because it is on " + name + ", where later accesses may fail or wait for a server, and " +
                readable(conditions.file_size) + " is at most a quarter of the " + readable(*conditions.available) +
                " of available memory"};
  const std::string memory = conditions.available ? "the " + readable(*conditions.available) + " of available memory"
                                                  : std::string("the available memory, whose size is unknown");
  return mapped("although it is on " + name + ", " + readable(conditions.file_size) + " is more than a quarter of " +
                memory + "; warm it early, so that errors raise exceptions");
}

ModeChoice choose_mode(const std::filesystem::path& path, std::uint64_t whole) {
  const auto fd = os::open_read(path.string());
  if (!fd) throw OsError("open", path.string(), fd.error);
  const auto facts = os::facts_of(fd.value.get());
  auto conditions = conditions_of(fd.value.get(), facts.value.device);
  if (facts) conditions.file_size = std::max(facts.value.size, whole);
  return choose_mode(conditions);
}

}  // namespace onecopy
