#include "files/writing/target.hpp"

#include <cerrno>
#include <random>
#include <span>
#include <utility>

#include "base/numbers.hpp"
#include "files/same_file.hpp"
#include "onecopy/base/crc32c.hpp"
#include "onecopy/base/error.hpp"

namespace onecopy {
namespace {

namespace fs = std::filesystem;

constexpr const char* saving = "save";

// Hidden names of a target end in a number, so that those of dead writers are found without listing the folder: with
// thousands of files in it, every save would take as long as all previous ones together.
constexpr unsigned numbered_names = 8;

// Where a link in the target's place leads in the end, also when nothing is there yet.
fs::path real_target(const fs::path& target) {
  fs::path at = target;
  for (int depth = 0; depth < 40; ++depth) {  // the kernel's own limit
    const auto facts = os::facts_of_entry(at.string());
    if (!facts || facts.value.kind != os::FileKind::link) return at;
    if (facts.value.owner != os::user_id() && facts.value.owner != 0)
      throw OsError(saving, at.string(), EACCES,
                    "it is a symbolic link of " + os::name_of_user(facts.value.owner) +
                        ", who controls where it leads; pass the path of the file itself");
    std::error_code error;
    const auto next = fs::read_symlink(at, error);
    if (error) return at;
    at = next.is_absolute() ? next : at.parent_path() / next;
  }
  throw OsError(saving, target.string(), ELOOP);
}

// Hidden names of one target share a prefix of fixed length, so that they fit beside the longest target name.
std::string hidden_prefix(const std::string& name) {
  return ".onecopy-" + hexadecimal(crc32c(0, std::as_bytes(std::span(name)))) + "-";
}

std::string parent_of(const fs::path& path) { return path.has_parent_path() ? path.parent_path().string() : "."; }

os::Fd opened_folder(const fs::path& path) {
  auto folder = os::open_folder(parent_of(path));
  if (!folder) throw OsError(saving, path.string(), folder.error);
  return std::move(folder.value);
}

}  // namespace

Target::Target(const fs::path& asked)
    : path_(real_target(asked)),
      folder_(opened_folder(path_)),
      name_(path_.filename().string()),
      prefix_(hidden_prefix(name_)) {
  check();
}

Target::Target(int folder, fs::path path)
    : path_(std::move(path)), by_path_(false), name_(path_.filename().string()), prefix_(hidden_prefix(name_)) {
  auto own = os::duplicate(folder);
  if (!own) fail(saving, own.error);
  folder_ = std::move(own.value);
  check();
}

void Target::check() const {
  const auto there = os::facts_of_entry(at(name_));
  if (there && there.value.kind == os::FileKind::folder) fail(saving, EISDIR);
  if (there && there.value.kind == os::FileKind::other)
    fail(saving, EEXIST, "the target is a FIFO, socket or device, which cannot be replaced");
  if (!there && there.error != ENOENT) fail(saving, there.error);
}

// Calls take(name) until it returns something else than EEXIST, and returns that.
template <class Try>
int Target::find_hidden_name(const Try& take) const {
  for (unsigned number = 0; number < numbered_names; ++number)
    if (const int error = take(prefix_ + std::to_string(number)); error != EEXIST) return error;
  for (std::random_device random;;)
    if (const int error = take(prefix_ + hexadecimal(random())); error != EEXIST) return error;
}

Target::NewFile Target::create() const {
  auto unnamed = os::create_unnamed(folder());
  if (unnamed && os::can_link_unnamed(unnamed.value.get())) {
    (void)os::try_lock(unnamed.value.get());
    return {std::move(unnamed.value), {}};
  }
  if (!unnamed && unnamed.error != EOPNOTSUPP) fail(saving, unnamed.error);
  NewFile file;
  const int error = find_hidden_name([&](const std::string& name) {
    auto named = os::create_named(at(name));
    if (!named) return named.error;
    // Between its creation and the lock, another writer may have considered it abandoned and removed it.
    if (os::try_lock(named.value.get()) == EAGAIN || !is_at(named.value.get(), at(name))) return EEXIST;
    file = {std::move(named.value), name};
    return 0;
  });
  if (error != 0) fail(saving, error);
  return file;
}

void Target::sweep() const {
  for (unsigned number = 0; number < numbered_names; ++number) {
    const auto name = at(prefix_ + std::to_string(number));
    if (const auto file = lock_abandoned(name)) (void)os::remove_file(name);
  }
}

// A saved file must be found at its path: not in a folder that was moved away, nor in one that has replaced it.
int Target::why_not_here() const {
  if (!by_path_) return 0;
  const auto there = os::facts_of(parent_of(path_));
  if (!there) return there.error;
  return is_same_file(os::facts_of(folder()), there) ? 0 : ESTALE;
}

int Target::put_nameless(int fd) const {
  if (const int error = why_not_here(); error != 0) return error;
  // linkat cannot replace a file, rename can: hence the detour over a hidden name.
  NewFile linked;
  const int refused = find_hidden_name([&](const std::string& name) {
    const int error = os::link_unnamed(fd, at(name));
    if (error == 0) linked.hidden = name;
    return error;
  });
  if (refused != 0) return refused;
  const int error = os::rename_file(at(linked.hidden), at(name_));
  if (error != 0) remove(linked);
  return error;
}

int Target::put_hidden(const NewFile& file, unsigned permissions) const {
  if (const int error = why_not_here(); error != 0) return error;
  if (const int error = os::set_permissions(file.fd.get(), permissions); error != 0) return error;
  return os::rename_file(at(file.hidden), at(name_));
}

void Target::remove(const NewFile& file) const noexcept {
  if (!file.hidden.empty()) (void)os::remove_file(at(file.hidden));
}

void Target::flush_folder() const {
  // A folder that may be written but not read (EACCES) cannot be flushed, and some file systems do not flush folders
  // (EINVAL).
  const int error = os::sync_folder(at("."));
  if (error != 0 && error != EACCES && error != EINVAL) fail("flush folder of", error);
}

void Target::fail(const char* operation, int error, std::string detail) const {
  throw OsError(operation, path_.string(), error, std::move(detail));
}

os::Fd lock_abandoned(const os::Name& hidden) noexcept {
  auto file = os::open_existing(hidden);
  // Before the lock, its writer may have put it in its place and ended, and another may have taken the name.
  if (!file || os::try_lock(file.value.get()) != 0 || !is_at(file.value.get(), hidden)) return {};
  return std::move(file.value);
}

}  // namespace onecopy
