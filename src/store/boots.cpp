#include "store/boots.hpp"

#include <cerrno>
#include <chrono>

#include "onecopy/base/error.hpp"
#include "os/os.hpp"
#include "store/claim.hpp"
#include "store/folder.hpp"

namespace onecopy::store {
namespace {

namespace fs = std::filesystem;

// Linux writes out what is dirty for 30 s by itself (vm.dirty_expire_centisecs): to flush it costs little from then on.
constexpr std::chrono::seconds settled_after{30};

bool is_old(const About& about) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::nanoseconds(now) - std::chrono::nanoseconds(about.created_ns) >= settled_after;
}

// False: bytes are lost.
bool settle(const Paths& paths, const About& shown) {
  const auto claim = Claim::take(paths.claim, shown.key);
  if (!claim) return true;  // another one does it, or removes it
  auto about = read_about(paths.about);
  if (about != shown) return true;
  try {
    flush_artefact(paths);
  } catch (const OsError& error) {
    if (error.code() != EIO) throw;
    remove_if_there(paths.about);
    remove_if_there(paths.artefact);
    return false;
  }
  about->boot.clear();
  write_about(paths.about, *about);
  return true;
}

}  // namespace

std::string boot_to_record(const fs::path& folder) {
  const auto fd = os::open_read(folder.string());
  const auto system = fd ? os::file_system_of(fd.value.get()) : os::Result<os::FileSystem>{{}, fd.error};
  if (!system || system.value.storage != os::Storage::local) return {};
  auto boot = os::boot_id();
  return boot ? std::move(boot.value) : std::string();
}

bool counts_in_this_boot(const About& about) {
  if (about.boot.empty()) return true;
  const auto boot = os::boot_id();
  return boot && boot.value == about.boot;
}

void flush_artefact(const Paths& paths) {
  const auto file = os::open_no_link(paths.artefact.string());
  const int error = file ? os::sync_file(file.value.get()) : file.error;
  if (error != 0) throw OsError("flush", paths.artefact.string(), error);
}

bool settle_if_old(const Paths& paths, const About& about) {
  if (about.boot.empty() || !is_old(about)) return true;
  try {
    return settle(paths, about);
  } catch (const OsError&) {
  } catch (const FormatError&) {  // damaged since it was read
  }
  return true;
}

}  // namespace onecopy::store
