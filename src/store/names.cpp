#include "store/names.hpp"

#include <array>
#include <cstdint>
#include <cstdio>

namespace onecopy::store {
namespace {

__extension__ using Wide = unsigned __int128;

constexpr Wide wide(std::uint64_t high, std::uint64_t low) { return static_cast<Wide>(high) << 64U | low; }

}  // namespace

std::string digest_of(std::string_view key) {
  // The constants of draft-eastlake-fnv, section 5.
  Wide hash = wide(0x6c62272e07bb0142, 0x62b821756295c58d);
  constexpr Wide prime = wide(0x0000000001000000, 0x000000000000013b);
  for (const char byte : key) hash = (hash ^ static_cast<unsigned char>(byte)) * prime;
  std::array<char, digest_length + 1> text{};
  std::snprintf(text.data(), text.size(), "%016llx%016llx", static_cast<unsigned long long>(hash >> 64U),
                static_cast<unsigned long long>(hash));
  return text.data();
}

Files files_of(const Folder& folder, const std::string& digest) {
  const auto with = [&](std::string_view suffix) { return File{folder, digest + std::string(suffix)}; };
  return {with(artefact_suffix), with(about_suffix), with(claim_suffix), with(partial_suffix), with(pieces_suffix)};
}

NameParts parts_of(const std::string& name) {
  if (name.find_first_not_of("0123456789abcdef") != digest_length) return {};
  NameParts parts{name.substr(0, digest_length), name.substr(digest_length)};
  for (const auto suffix : {artefact_suffix, about_suffix, claim_suffix, partial_suffix, pieces_suffix})
    if (parts.suffix == suffix) return parts;
  return {};
}

}  // namespace onecopy::store
