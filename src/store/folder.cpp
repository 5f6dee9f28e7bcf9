#include "store/folder.hpp"

#include <system_error>

#include "onecopy/base/error.hpp"

namespace onecopy::store {
namespace {

namespace fs = std::filesystem;

constexpr unsigned of_others = 0077;

std::string octal(unsigned permissions) {
  std::string text;
  for (; permissions != 0; permissions /= 8) text.insert(text.begin(), static_cast<char>('0' + permissions % 8));
  return "0" + text;
}

std::string belongs_to_another(const os::FileFacts& facts) {
  return "it belongs to user " + std::to_string(facts.owner) + ", and we are user " + std::to_string(os::user_id());
}

void expect_private(const fs::path& folder, const os::FileFacts& facts) {
  const auto refuse = [&](int code, std::string why) {
    throw OsError("use as a store", folder.string(), code, std::move(why));
  };
  if (facts.kind != os::FileKind::folder) refuse(ENOTDIR, {});
  if (facts.owner != os::user_id()) refuse(EACCES, belongs_to_another(facts));
  if ((facts.permissions & of_others) != 0)
    refuse(EACCES, "others may enter it (mode " + octal(facts.permissions) + "); chmod 700 makes it yours alone");
}

void make(const fs::path& folder) {
  std::error_code error;
  if (folder.has_parent_path()) fs::create_directories(folder.parent_path(), error);
  if (error) throw OsError("make folder", folder.parent_path().string(), error.value());
  const int refused = os::create_folder(folder.string());
  if (refused != 0 && refused != EEXIST) throw OsError("make folder", folder.string(), refused);
}

}  // namespace

void prepare_folder(const fs::path& folder) {
  const auto there = os::facts_of_entry(folder.string());
  if (there.error == ENOENT) make(folder);
  if (there && there.value.kind == os::FileKind::link)
    throw OsError("use as a store", folder.string(), ELOOP, "it is a symbolic link; give the folder itself");
  const auto opened = os::open_no_link(folder.string());
  if (!opened) throw OsError("use as a store", folder.string(), opened.error);
  const auto facts = os::facts_of(opened.value.get());
  if (!facts) throw OsError("use as a store", folder.string(), facts.error);
  expect_private(folder, facts.value);
}

os::Result<os::FileFacts> facts_of_ours(const fs::path& path) {
  auto facts = os::facts_of_entry(path.string());
  if (!facts && facts.error == ENOENT) return facts;
  if (!facts) throw OsError("look at", path.string(), facts.error);
  const auto refuse = [&](int code, std::string why) { throw OsError("use", path.string(), code, std::move(why)); };
  if (facts.value.kind == os::FileKind::link) refuse(ELOOP, "a symbolic link stands where a file of the store belongs");
  if (facts.value.kind == os::FileKind::folder) refuse(EISDIR, "a folder stands where a file of the store belongs");
  if (facts.value.kind != os::FileKind::regular) refuse(EEXIST, "a FIFO, socket or device stands where a file belongs");
  if (facts.value.owner != os::user_id()) refuse(EACCES, belongs_to_another(facts.value));
  return facts;
}

void remove_if_there(const fs::path& path) {
  const int error = os::remove_file(path.string());
  if (error != 0 && error != ENOENT) throw OsError("remove", path.string(), error);
}

}  // namespace onecopy::store
