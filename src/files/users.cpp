#include "onecopy/files/users.hpp"

#include <string>

#include "onecopy/base/error.hpp"
#include "os/os.hpp"

namespace onecopy {
namespace {

std::optional<std::uint64_t> unless_unknown(std::uint64_t user) noexcept {
  return user == os::unknown_user ? std::nullopt : std::optional(user);
}

std::optional<std::uint64_t> owner_in(const os::Result<os::FileFacts>& facts, const std::string& path) {
  if (!facts) throw OsError("get the owner of", path, facts.error);
  return unless_unknown(facts.value.owner);
}

}  // namespace

std::optional<std::uint64_t> known_user(std::uint64_t id) noexcept { return unless_unknown(os::known_user(id)); }

std::optional<std::uint64_t> owner_of(int fd) { return owner_in(os::facts_of(fd), {}); }

std::optional<std::uint64_t> owner_of(const std::filesystem::path& path) {
  return owner_in(os::facts_of_entry(path.string()), path.string());
}

}  // namespace onecopy
