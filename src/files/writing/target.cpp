#include "files/writing/target.hpp"

#include <array>
#include <cerrno>
#include <cstdio>
#include <random>
#include <span>
#include <utility>

#include "onecopy/base/crc32c.hpp"
#include "onecopy/base/error.hpp"
#include "os/os.hpp"

namespace onecopy {
namespace {

namespace fs = std::filesystem;

std::string hexadecimal(std::uint32_t number) {
  std::array<char, 9> text{};
  std::snprintf(text.data(), text.size(), "%08x", number);
  return text.data();
}

// Where a link in the target's place leads in the end, also when nothing is there yet.
fs::path real_target(const fs::path& target) {
  fs::path at = target;
  for (int depth = 0; depth < 40; ++depth) {  // the kernel's own limit
    std::error_code error;
    const auto next = fs::read_symlink(at, error);
    if (error) return at;
    at = next.is_absolute() ? next : at.parent_path() / next;
  }
  throw OsError("save", target.string(), ELOOP);
}

// Hidden names of one target share a prefix of fixed length, so that the longest target name still has room.
std::string hidden_prefix(const fs::path& target) {
  const auto name = target.filename().string();
  return ".onecopy-" + hexadecimal(crc32c(0, std::as_bytes(std::span(name)))) + "-";
}

}  // namespace

Target::Target(const fs::path& asked)
    : target_(real_target(asked)),
      folder_(target_.has_parent_path() ? target_.parent_path().string() : "."),
      prefix_(hidden_prefix(target_)) {
  check();
}

void Target::check() const {
  const auto there = os::facts_of(target_.string());
  if (there && there.value.kind == os::FileKind::folder) fail("save", EISDIR);
  if (there && there.value.kind == os::FileKind::other)
    fail("save", EEXIST, "a FIFO, socket or device stands there, and is not to be replaced");
  if (!there && there.error != ENOENT) fail("save", there.error);
}

void Target::sweep() const {
  std::error_code error;
  for (fs::directory_iterator at(folder_, error), end; !error && at != end; at.increment(error)) {
    if (!at->path().filename().string().starts_with(prefix_)) continue;
    const auto file = os::open_read(at->path().string());
    if (file && os::try_lock(file.value.get())) (void)os::remove_file(at->path().string());
  }
}

std::string Target::new_hidden_name() const {
  std::random_device random;
  return (fs::path(folder_) / (prefix_ + hexadecimal(random()))).string();
}

int Target::take_place(int fd, std::string& hidden) const {
  if (hidden.empty()) {
    // linkat cannot replace a file, rename can: hence the detour over a hidden name.
    auto name = new_hidden_name();
    if (const int error = os::link_unnamed(fd, name); error != 0) return error;
    hidden = std::move(name);
  }
  if (const int error = os::rename_file(hidden, target_.string()); error != 0) return error;
  hidden.clear();
  return 0;
}

void Target::flush_folder() const {
  // A folder that may be written but not read (EACCES) cannot be flushed, and some file systems do not flush folders
  // (EINVAL).
  const int error = os::sync_folder(folder_);
  if (error != 0 && error != EACCES && error != EINVAL) fail("flush folder of", error);
}

void Target::fail(const char* operation, int error, std::string detail) const {
  throw OsError(operation, target_.string(), error, std::move(detail));
}

}  // namespace onecopy
