// The files of a key: names made of a digest of it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "store/folder.hpp"

namespace onecopy::store {

inline constexpr std::string_view artefact_suffix = ".oc";
inline constexpr std::string_view about_suffix = ".about";
inline constexpr std::string_view claim_suffix = ".claim";
// What is being fetched in pieces: the file so far, and the key and the checksums of the pieces that it has.
inline constexpr std::string_view partial_suffix = ".partial";
inline constexpr std::string_view pieces_suffix = ".pieces";

inline constexpr std::string_view views_folder = "views";      // links to artefacts by the names of what was fetched
inline constexpr std::string_view holds_folder = "holds";      // links to memory of `onecopy hold` by its names
inline constexpr std::string_view servers_folder = "servers";  // sockets of `onecopy run`

inline constexpr std::size_t digest_length = 32;

// FNV-1a of 128 bits, in 32 hexadecimal digits. Not for secrets: two keys with one digest are found by comparing them.
std::string digest_of(std::string_view key);

struct Files {
  File artefact;
  File about;
  File claim;
  File partial;
  File pieces;
};

Files files_of(const Folder& folder, const std::string& digest);

// "<32 digits><suffix>" in two, or two empty parts for any other name.
struct NameParts {
  std::string digest;
  std::string suffix;
};
NameParts parts_of(const std::string& name);

}  // namespace onecopy::store
