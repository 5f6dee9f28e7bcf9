#include "formats/onecopy_metadata.hpp"
#include "formats/parsing.hpp"
#include "onecopy/base/error.hpp"
#include "onecopy/formats/layout.hpp"
#include "onecopy/formats/safetensors.hpp"
#include "precompiled.hpp"
#include "scratch_folder.hpp"

namespace onecopy {
namespace {

std::vector<ArraySpec> random_arrays(std::mt19937_64& random) {
  std::vector<ArraySpec> arrays;
  for (std::uint64_t count = random() % 12; count > 0; --count) {
    ArraySpec array;
    array.name = "layer\"\n\u00e9." + std::to_string(count);
    array.dtype = dtype_table.at(random() % dtype_table.size()).dtype;
    for (std::uint64_t rank = random() % 4; rank > 0; --rank) array.shape.push_back(random() % 40);
    if (bits(array.dtype) % 8 != 0) array.shape.push_back(8);  // packed types fill whole bytes
    arrays.push_back(array);
  }
  return arrays;
}

// A file as it would be written, with zeros for data.
std::vector<std::byte> file_of(const Layout& layout) {
  const std::vector<std::uint32_t> blocks(layout.block_count(), 0xABCD1234U);
  const auto header = layout.header(blocks);
  std::vector<std::byte> file(layout.file_size());
  std::ranges::copy(std::as_bytes(std::span(header)), file.begin());
  return file;
}

}  // namespace

TEST_CASE("every layout is a valid file that keeps the rules of the format") {
  std::mt19937_64 random(1);
  for (int round = 0; round < 400; ++round) {
    const auto arrays = random_arrays(random);
    LayoutOptions options;
    if (random() % 3 == 0) options.align = std::uint64_t{64} << (random() % 8);
    if (random() % 4 == 0) options.kind = Kind::records;
    options.checksum = random() % 4 != 0;
    options.metadata["key \"\\"] = "value\t";
    const auto layout = Layout::plan(arrays, options);
    CHECK(layout.data_offset() % 4096 == 0);
    const auto file = file_of(layout);
    const auto index = safetensors::parse(file);
    CHECK(index.kind() == options.kind);
    CHECK(index.header_check() == (options.checksum ? HeaderCheck::matched : HeaderCheck::absent));
    CHECK(index.metadata().at("key \"\\") == "value\t");
    CHECK(index.metadata().at("format") == "pt");
    std::vector<const Entry*> shown;
    for (const Entry& entry : index.entries()) {
      if (!index.is_filler(entry)) shown.push_back(&entry);
      if (options.align) CHECK(entry.offset % (index.is_filler(entry) ? 1 : *options.align) == 0);
    }
    REQUIRE(shown.size() == arrays.size());
    for (std::size_t i = 0; i < arrays.size(); ++i) {  // the user's keys, in the user's order
      CHECK(shown[i]->name == arrays[i].name);
      CHECK(shown[i]->dtype == arrays[i].dtype);
      CHECK(std::ranges::equal(shown[i]->shape, arrays[i].shape));
      const std::uint64_t item = item_alignment(arrays[i].dtype);
      CHECK(shown[i]->offset % item == 0);
      if (shown[i]->length % 64 == 0) CHECK(shown[i]->offset % 64 == 0);
      if (options.kind != Kind::arrays) CHECK(shown[i]->offset % 64 == 0);
    }
    if (!options.align && options.kind == Kind::arrays) CHECK(index.entries().size() == arrays.size());
    if (options.kind != Kind::arrays) CHECK(index.entries().back().length >= 64);
  }
}

TEST_CASE("a header that grows with its checksums still fits") {
  // Enough blocks for the checksums to push the data section over several pages.
  for (const std::uint64_t size : {std::uint64_t{100} << 30U, std::uint64_t{3} << 40U}) {
    const auto layout = Layout::plan({{"a", DType::u8, {size}}}, {});
    const std::vector<std::uint32_t> blocks(layout.block_count());
    CHECK(layout.header(blocks).size() == layout.data_offset());
  }
}

TEST_CASE("what cannot be laid out is an error, before anything is allocated for it, and no size wraps") {
  const auto error_of = [](std::vector<ArraySpec> arrays, LayoutOptions options = {}) {
    return testing::refusal([&] { return Layout::plan(std::move(arrays), std::move(options)); });
  };
  CHECK(error_of({{"a", DType::u8, {1}}, {"a", DType::u8, {1}}}) == "inconsistent");
  CHECK(error_of({{"__metadata__", DType::u8, {1}}}) == "unsupported");
  CHECK(error_of({{"\xff", DType::u8, {1}}}) == "malformed");
  CHECK(error_of({{"a", DType::f4, {3}}}) == "unsupported");
  CHECK(error_of({{"a", DType::f64, {UINT64_MAX, 8}}}) == "unsupported");
  CHECK(error_of({}, {.align = 100}) == "unsupported");
  CHECK(error_of({{"#0", DType::u8, {1}}}, {.align = 64}) == "unsupported");
  CHECK(error_of({{"#0", DType::u8, {1}}}) == "accepted");
  CHECK(error_of({}, {.metadata = {{"onecopy", "x"}}}) == "unsupported");
  CHECK(error_of({}, {.metadata = {{"\xff", "x"}}}) == "malformed");
  constexpr std::uint64_t largest = UINT64_MAX / 2;
  for (const bool checksum : {false, true}) {
    const LayoutOptions options{.align = std::uint64_t{2} << 20U, .checksum = checksum};
    CHECK(error_of({{"a", DType::u8, {largest}}}, options) == "unsupported");
    std::vector<ArraySpec> many;  // each of which is as large as one can be: 64 bits turn round
    for (int i = 0; i < 20; ++i) many.push_back({std::to_string(i), DType::u8, {largest / 8}});
    CHECK(error_of(many, options) == "unsupported");
  }
  // 2^32 checksums: 16 GiB of them, and a header that no reader accepts.
  CHECK(error_of({{"a", DType::u8, {std::uint64_t{1} << 53U}}}) == "too_costly");
}

TEST_CASE("the data begins where it lies already, if the header fits before it") {
  const std::vector<ArraySpec> arrays{{"a", DType::u8, {100}}};
  for (const std::uint64_t least : {0U, 1U, 4096U, 4097U, 50'000U}) {
    LayoutOptions options;
    options.least_data_offset = least;
    const auto layout = Layout::plan(arrays, options);
    CHECK(layout.data_offset() == std::max<std::uint64_t>(4096, (least + 4095) / 4096 * 4096));
    CHECK(layout.header(std::vector<std::uint32_t>(layout.block_count())).size() == layout.data_offset());
    CHECK(layout.file_size() == layout.data_offset() + 100);
  }
  LayoutOptions absurd;
  absurd.least_data_offset = UINT64_MAX;
  CHECK_THROWS_AS((void)Layout::plan(arrays, absurd), FormatError);
}

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
    const auto facts = metadata::parse(metadata::write({.blocks = std::span<const std::uint32_t>(numbers)}));
    REQUIRE(facts);
    const auto blocks = metadata::parse_blocks(*facts, {std::uint64_t{1} << 21U, std::uint64_t{count} << 21U});
    REQUIRE(blocks.present());
    for (std::uint32_t i = 0; i < count; ++i) CHECK(blocks.expected(i) == numbers[i]);
  }
}

TEST_CASE("blocks of checksums have a power of two of bytes, from 4096 to 2 MiB") {
  for (const std::uint64_t bytes : {2048U, 4096U, 5000U, 8192U, 1U << 21U, 1U << 22U}) {
    CAPTURE(bytes);
    const bool is_read = bytes != 2048 && bytes != 5000 && bytes != 1U << 22U;
    const metadata::Facts facts{.block = bytes, .blocks = "AAAAAA=="};
    if (is_read)
      CHECK(metadata::parse_blocks(facts, {bytes, bytes}).size() == 1);
    else
      CHECK_THROWS_AS((void)metadata::parse_blocks(facts, {bytes, bytes}), FormatError);
  }
}

}  // namespace onecopy
