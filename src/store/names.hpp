// The files of a key: names made of a digest of it.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace onecopy::store {

inline constexpr std::string_view artefact_suffix = ".oc";
inline constexpr std::string_view about_suffix = ".about";
inline constexpr std::string_view claim_suffix = ".claim";

// FNV-1a of 128 bits, in 32 hexadecimal digits. Not for secrets: two keys with one digest are found by comparing them.
std::string digest_of(std::string_view key);

struct Paths {
  std::filesystem::path artefact;
  std::filesystem::path about;
  std::filesystem::path claim;
};

Paths paths_of(const std::filesystem::path& folder, const std::string& digest);

// "<32 digits><suffix>" in two, or two empty parts for any other name.
struct NameParts {
  std::string digest;
  std::string suffix;
};
NameParts parts_of(const std::string& name);

}  // namespace onecopy::store
