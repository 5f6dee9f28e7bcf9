// The text that onecopy keeps under __metadata__["onecopy"]: what kind of file it is, and checksums.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "onecopy/base/bytes.hpp"
#include "onecopy/formats/index.hpp"

namespace onecopy::metadata {

inline constexpr std::string_view key = "onecopy";
inline constexpr std::uint64_t version = 1;

struct Facts {
  Kind kind = Kind::arrays;
  std::uint64_t align = 0;             // 0: no fillers among plain arrays
  std::string header_crc;              // 8 lowercase hexadecimal digits; empty: none
  std::optional<std::uint64_t> block;  // bytes; none: no checksums of blocks
  std::string blocks;                  // their checksums in base64
};

// Empty when onecopy did not write the text. Throws FormatError for a version or a kind that this program does not
// know.
std::optional<Facts> parse(std::string_view text);

// Checksums of the blocks of `data`, the data section. Throws FormatError when they are not what our writer makes.
BlockChecksums parse_blocks(const Facts& facts, ByteRange data);

// What `write` puts into the text.
struct Content {
  Kind kind = Kind::arrays;
  std::uint64_t align = 0;                               // 0: not recorded
  std::string schema;                                    // JSON; empty: none
  std::optional<std::span<const std::uint32_t>> blocks;  // checksums of the data; none: the file has no checksums
};

// The header's own digits are left as zeros.
std::string write(const Content& content);

// The place of the header's own 8 digits in the file's first bytes [0, 8 + N), given where our text ends there (its
// quote included): they are the last thing in it.
constexpr std::size_t header_crc_before(std::size_t ours_end) noexcept {
  constexpr std::string_view after_digits = R"(\"}}")";  // as it stands in the file: JSON inside a JSON string
  return ours_end - after_digits.size() - 8;
}

// The checksum of the first bytes with those 8 digits read as zeros.
std::string header_crc(std::string_view first_bytes, std::size_t digits_at);

}  // namespace onecopy::metadata
