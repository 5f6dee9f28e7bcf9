#include "store/boots.hpp"

#include <cerrno>
#include <chrono>

#include "onecopy/base/error.hpp"
#include "os/os.hpp"
#include "store/claim.hpp"
#include "store/folder.hpp"

namespace onecopy::store {
namespace {

// Linux writes out pages that were dirty for 30 s (vm.dirty_expire_centisecs): flushing is cheap from then on.
constexpr std::chrono::seconds settled_after{30};

bool is_old(const About& about) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::nanoseconds(now) - std::chrono::nanoseconds(about.created_ns) >= settled_after;
}

// False: bytes are lost.
bool settle(const Files& files, const About& shown, const os::Fd& artefact) {
  const auto claim = Claim::take(files.claim, shown.key);
  if (!claim) return true;  // another process flushes or removes it
  auto about = read_about(files.about);
  if (about != shown) return true;
  try {
    flush_artefact(artefact, files.artefact);
  } catch (const OsError& error) {
    if (error.code() != EIO) throw;
    remove_if_there(files.about);
    remove_if_there(files.artefact);
    return false;
  }
  about->boot.clear();
  write_about(files.about, *about);
  return true;
}

}  // namespace

std::string boot_to_record(const Folder& folder) {
  const auto system = os::file_system_of(folder.descriptor());
  if (!system || system.value.storage != os::Storage::local) return {};
  auto boot = os::boot_id();
  return boot ? std::move(boot.value) : std::string();
}

bool counts_in_this_boot(const About& about) {
  if (about.boot.empty()) return true;
  const auto boot = os::boot_id();
  return boot && boot.value == about.boot;
}

void flush_artefact(const os::Fd& artefact, const File& file) {
  if (const int error = os::sync_file(artefact.get()); error != 0) fail(file, "flush", error);
}

bool settle_if_old(const Files& files, const About& about, const os::Fd& artefact) {
  if (about.boot.empty() || !is_old(about)) return true;
  try {
    return settle(files, about, artefact);
  } catch (const OsError&) {
  } catch (const FormatError&) {  // damaged since it was read
  }
  return true;
}

}  // namespace onecopy::store
