// Who owns a file, or is at the other end of a socket. In a user namespace the kernel shows every user without an id
// there as the overflow id (65534), which a user of the namespace may have too.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace onecopy {

// The user that the kernel means by an id; nullopt for the overflow id where it may stand for any user.
std::optional<std::uint64_t> known_user(std::uint64_t id) noexcept;

// The owner of an open file, or of what is at a path (of a symbolic link itself). nullopt: it has no id here. Throws
// OsError.
std::optional<std::uint64_t> owner_of(int fd);
std::optional<std::uint64_t> owner_of(const std::filesystem::path& path);

}  // namespace onecopy
