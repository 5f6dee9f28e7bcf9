#include "formats/onecopy_metadata.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>
#include <vector>

#include "base/numbers.hpp"
#include "formats/wire/json.hpp"
#include "onecopy/base/crc32c.hpp"
#include "onecopy/base/error.hpp"
#include "onecopy/formats/layout.hpp"

namespace onecopy::metadata {
namespace {

constexpr std::string_view zero_digits = "00000000";
std::uint32_t crc_of(std::uint32_t before, std::string_view text) {
  return crc32c(before, std::as_bytes(std::span(text)));
}

Kind parse_kind(std::string_view name) {
  for (const Kind kind : {Kind::arrays, Kind::structure, Kind::records, Kind::image})
    if (to_string(kind) == name) return kind;
  reject(FormatError::unsupported,
         "the file is of kind " + json::describe(name) + ", which this version of onecopy cannot read");
}

void parse_checksums(json::Reader& reader, Facts& facts) {
  reader.object([&](std::string_view field) {
    if (field == "header")
      facts.header_crc = reader.string();
    else if (field == "block")
      facts.block = reader.integer();
    else if (field == "data")
      facts.blocks = reader.string();
    else
      reader.skip();
  });
}

constexpr std::string_view alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

std::string base64(std::span<const std::uint32_t> blocks) {
  std::string bytes;
  for (const std::uint32_t block : blocks)
    for (unsigned shift = 0; shift < 32; shift += 8) bytes.push_back(static_cast<char>((block >> shift) & 0xFFU));
  std::string out;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const auto at = [&](std::size_t k) -> std::uint32_t {
      return i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0U;
    };
    const std::uint32_t three = (at(0) << 16U) | (at(1) << 8U) | at(2);
    const std::size_t used = std::min<std::size_t>(bytes.size() - i, 3);
    for (std::size_t k = 0; k < 4; ++k) out.push_back(k <= used ? alphabet[(three >> (18U - 6U * k)) & 0x3FU] : '=');
  }
  return out;
}

constexpr std::array<std::uint8_t, 256> make_digits() {
  std::array<std::uint8_t, 256> digits{};
  digits.fill(0);  // characters that are not digits are found when the text is compared
  for (std::size_t i = 0; i < alphabet.size(); ++i)
    digits.at(static_cast<unsigned char>(alphabet[i])) = static_cast<std::uint8_t>(i);
  return digits;
}

// `count` numbers; none unless base64() of them is exactly this text.
std::optional<std::vector<std::uint32_t>> parse_base64(std::string_view text, std::uint64_t count) {
  constexpr auto digits = make_digits();
  const std::uint64_t bytes = count * sizeof(std::uint32_t);
  if (text.size() != (bytes + 2) / 3 * 4) return std::nullopt;
  std::vector<std::uint32_t> numbers(count);
  for (std::size_t byte = 0; byte < bytes; ++byte) {
    const std::size_t bit = 8 * byte;  // of the stream, of which each digit holds six
    const auto digit = [&](std::size_t i) { return unsigned{digits.at(static_cast<unsigned char>(text[i]))}; };
    const unsigned pair = (digit(bit / 6) << 6U) | digit(bit / 6 + 1);
    numbers[byte / 4] |= ((pair >> (4 - bit % 6)) & 0xFFU) << (bit % 32);
  }
  if (base64(numbers) != text) return std::nullopt;
  return numbers;
}

}  // namespace

std::optional<Facts> parse(std::string_view text) {
  Facts facts;
  std::uint64_t found_version = 0;
  std::string kind;
  std::list<std::string> unescaped;
  json::Reader reader(text, unescaped);
  try {
    reader.object([&](std::string_view field) {
      if (field == "version")
        found_version = reader.integer();
      else if (field == "kind")
        kind = reader.string();
      else if (field == "align")
        facts.align = reader.integer();
      else if (field == "crc32c")
        parse_checksums(reader, facts);
      else
        reader.skip();  // a later version's, or the schema, which its own module reads
    });
    reader.end();
  } catch (const FormatError&) {
    return std::nullopt;  // another tool's text under onecopy's name
  }
  if (found_version == 0 || kind.empty()) return std::nullopt;
  if (found_version > version)
    reject(FormatError::unsupported, "the file has format version ", found_version,
           ", but this version of onecopy only reads versions up to ", version);
  facts.kind = parse_kind(kind);
  return facts;
}

BlockChecksums parse_blocks(const Facts& facts, ByteRange data) {
  if (!facts.block) return {};
  const std::uint64_t block = *facts.block;
  constexpr std::uint64_t smallest = 4096;
  if (!std::has_single_bit(block) || block < smallest || block > Layout::checksum_block)
    reject(FormatError::unsupported, "the size of checksum blocks must be a power of two from 4096 to 2097152, not ",
           block);
  const std::uint64_t count = BlockChecksums::count(data, block);
  auto checksums = parse_base64(facts.blocks, count);
  if (!checksums)
    reject(FormatError::inconsistent, "the checksums are not the base64 text of ", count,
           ", the number that the data section needs");
  return {data, block, std::move(*checksums)};
}

std::string write(const Content& content) {
  std::string text = "{\"version\":" + std::to_string(version) + ",\"kind\":" + json::quoted(to_string(content.kind));
  if (content.align != 0) text += ",\"align\":" + std::to_string(content.align);
  if (!content.schema.empty()) text += ",\"schema\":" + content.schema;
  if (content.blocks)  // last, so that the header's digits are found from the end
    text += ",\"crc32c\":{\"block\":" + std::to_string(Layout::checksum_block) + ",\"data\":\"" +
            base64(*content.blocks) + "\",\"header\":\"" + std::string(zero_digits) + "\"}";
  return text + "}";
}

std::string header_crc(std::string_view first_bytes, std::size_t digits_at) {
  std::uint32_t crc = crc_of(0, first_bytes.substr(0, digits_at));
  crc = crc_of(crc, zero_digits);
  crc = crc_of(crc, first_bytes.substr(digits_at + zero_digits.size()));
  return hexadecimal(crc);
}

}  // namespace onecopy::metadata
