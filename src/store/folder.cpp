#include "store/folder.hpp"

#include <optional>
#include <system_error>

#include "onecopy/base/error.hpp"

namespace onecopy::store {
namespace {

namespace fs = std::filesystem;

constexpr unsigned of_others = 0077;
constexpr unsigned written_by_others = 0022;
constexpr unsigned private_folder = 0700;
constexpr unsigned shared_folder = 0750;

std::string octal(unsigned permissions) {
  std::string text;
  for (; permissions != 0; permissions /= 8) text.insert(text.begin(), static_cast<char>('0' + permissions % 8));
  return "0" + text;
}

std::string belongs_to_another(const os::FileFacts& facts, std::uint64_t owner) {
  return "it belongs to " + os::name_of_user(facts.owner) + ", " +
         (owner == os::user_id() ? "but this process runs as " : "not to ") + os::name_of_user(owner);
}

std::uint64_t owner_in(const StoreUsers& users) { return users.owner.value_or(os::user_id()); }

struct Refusal {
  int code = 0;
  std::string why;
};

// Why a folder is refused; code 0: it is not.
Refusal refusal_of(const os::FileFacts& facts, const StoreUsers& users) {
  const auto owner = owner_in(users);
  if (facts.kind == os::FileKind::link) return {ELOOP, "it is a symbolic link; pass the path of the folder itself"};
  if (facts.kind != os::FileKind::folder) return {ENOTDIR, "it is not a folder"};
  if (facts.owner != owner) return {EACCES, belongs_to_another(facts, owner)};
  if (users.shared && (facts.permissions & written_by_others) != 0)
    return {EACCES, "other users may write to it (mode " + octal(facts.permissions) + "); chmod go-w prevents that"};
  if (!users.shared && (facts.permissions & of_others) != 0)
    return {EACCES,
            "other users have access to it (mode " + octal(facts.permissions) + "); chmod 700 makes it private"};
  return {};
}

[[noreturn]] void refuse_folder(const fs::path& folder, Refusal refusal) {
  throw OsError("use as a store", folder.string(), refusal.code, std::move(refusal.why));
}

[[noreturn]] void refuse_folder(const fs::path& folder, int error) {
  auto why = std::generic_category().message(error);
  refuse_folder(folder, {error, std::move(why) + "; set ONECOPY_CACHE to a folder to which this user may write"});
}

// And those above it, whatever the umask: a cache folder that others may write can be exchanged by them.
void make(const fs::path& folder, unsigned permissions) {
  const int error = os::create_folder(folder.string(), permissions);
  if (error == 0 || error == EEXIST) return;
  const auto above = folder.parent_path();
  if (error != ENOENT || above == folder || above.empty()) refuse_folder(folder, error);
  make(above, private_folder);
  const int again = os::create_folder(folder.string(), permissions);
  if (again != 0 && again != EEXIST) refuse_folder(folder, again);
}

void expect_ours(const File& file, const os::FileFacts& facts) {
  const auto refuse = [&](int code, std::string why) { fail(file, "use", code, std::move(why)); };
  if (facts.kind == os::FileKind::link) refuse(ELOOP, "it is a symbolic link, not a file in the store");
  if (facts.kind == os::FileKind::folder) refuse(EISDIR, "it is a folder, not a file in the store");
  if (facts.kind != os::FileKind::regular) refuse(EEXIST, "it is a FIFO, socket or device, not a file in the store");
  if (const auto owner = file.folder.owner(); facts.owner != owner) refuse(EACCES, belongs_to_another(facts, owner));
}

}  // namespace

void fail(const File& file, const char* operation, int error, std::string detail) {
  throw OsError(operation, file.path().string(), error, std::move(detail));
}

Folder Folder::open(const fs::path& path, const StoreUsers& users) {
  auto opened = os::open_no_link(path.string());
  if (opened.error == ENOENT && owner_in(users) == os::user_id()) {
    make(path, users.shared ? shared_folder : private_folder);
    opened = os::open_no_link(path.string());
  }
  // For another user's folder the error names the owner, not the failed open.
  const auto facts = opened ? os::facts_of(opened.value.get()) : os::facts_of_entry(path.string());
  if (!facts) refuse_folder(path, opened ? facts.error : opened.error);
  if (auto refusal = refusal_of(facts.value, users); refusal.code != 0) refuse_folder(path, std::move(refusal));
  if (!opened) refuse_folder(path, opened.error);
  return {std::move(opened.value), path, facts.value};
}

unsigned Folder::readers() const noexcept { return os::facts_of(descriptor()).value.permissions & 0044U; }

std::pair<fs::path, std::string> choose_name(const fs::path& name, const StoreUsers& users) {
  constexpr int names = 16;
  std::string obstacle;
  std::optional<fs::path> free;
  for (int i = 0; i < names; ++i) {
    auto path = i == 0 ? name : fs::path(name.string() + "-" + std::to_string(i));
    const auto facts = os::facts_of_entry(path.string());
    const auto why = facts ? refusal_of(facts.value, users).why : std::string();
    const bool is_shared = facts && users.shared && facts.value.owner == owner_in(users);
    if (is_shared || (facts && why.empty())) return {std::move(path), std::move(obstacle)};
    if (i == 0 && facts) obstacle = path.string() + ": " + why;
    if (!facts && !free) free = std::move(path);
  }
  if (!free) return {name, {}};  // opening it reports why
  return {std::move(*free), std::move(obstacle)};
}

os::Result<os::FileFacts> facts_of_ours(const File& file) {
  auto facts = os::facts_of_entry(file.at());
  if (!facts && facts.error == ENOENT) return facts;
  if (!facts) fail(file, "get the attributes of", facts.error);
  expect_ours(file, facts.value);
  return facts;
}

bool is_ours_alone(const os::FileFacts& facts) noexcept {
  return (facts.permissions & written_by_others) == 0 && facts.links <= 1;
}

os::Fd open_ours(const File& file) {
  if (!facts_of_ours(file)) return {};  // first, because opening a device may have effects
  auto opened = os::open_no_link(file.at());
  if (opened.error == ENOENT) return {};
  if (!opened) fail(file, "open", opened.error);
  const auto facts = os::facts_of(opened.value.get());
  if (!facts) fail(file, "get the attributes of", facts.error);
  expect_ours(file, facts.value);
  return is_ours_alone(facts.value) ? std::move(opened.value) : os::Fd();
}

void remove_if_there(const File& file) {
  const int error = os::remove_file(file.at());
  if (error != 0 && error != ENOENT) fail(file, "remove", error);
}

}  // namespace onecopy::store
