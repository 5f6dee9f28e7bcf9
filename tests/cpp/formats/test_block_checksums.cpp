#include <doctest/doctest.h>

#include <bit>

#include "formats/onecopy_metadata.hpp"

namespace onecopy {
namespace {

metadata::Facts facts_of(const std::vector<std::uint32_t>& blocks) {
  const auto facts = metadata::parse(metadata::write({.blocks = std::span<const std::uint32_t>(blocks)}));
  REQUIRE(facts);
  return *facts;
}

}  // namespace

TEST_CASE("blocks are cut at multiples of the file offset, and cover the data section once") {
  constexpr std::uint64_t block = 4096;
  for (const std::uint64_t offset : {0U, 1U, 4095U, 4096U, 5000U, 8192U}) {
    for (const std::uint64_t length : {0U, 1U, 4095U, 4096U, 4097U, 20000U}) {
      const ByteRange data{offset, length};
      const BlockChecksums blocks(data, block, std::vector<std::uint32_t>(BlockChecksums::count(data, block)));
      std::uint64_t at = offset;
      for (std::size_t i = 0; i < blocks.size(); ++i) {
        CHECK(blocks.range(i).offset == at);
        CHECK(blocks.range(i).length > 0);
        at += blocks.range(i).length;
        CHECK((at % block == 0 || at == offset + length));
        CHECK(blocks.covering(blocks.range(i)) == std::pair(i, i + 1));
      }
      CHECK(at == offset + length);
      CHECK(blocks.covering({0, 100'000}) == std::pair(std::size_t{0}, blocks.size()));
    }
  }
}

TEST_CASE("checksums are read as they were written, whatever their number") {
  for (std::uint32_t count = 0; count < 10; ++count) {
    std::vector<std::uint32_t> numbers;
    for (std::uint32_t i = 0; i < count; ++i) numbers.push_back(0x9E3779B9U * (i + 1));
    const ByteRange data{4096, std::uint64_t{count} << 21U};
    const auto facts = facts_of(count == 0 ? numbers : [&] {  // the first block begins 4096 bytes in
      auto more = numbers;
      more.push_back(7);
      return more;
    }());
    const auto blocks = metadata::parse_blocks(facts, data);
    REQUIRE(blocks.present());
    for (std::uint32_t i = 0; i < count; ++i) CHECK(blocks.expected(i) == numbers[i]);
  }
}

}  // namespace onecopy
