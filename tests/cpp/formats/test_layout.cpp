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

TEST_CASE("what cannot be laid out is an error") {
  const auto error_of = [](std::vector<ArraySpec> arrays, LayoutOptions options = {}) -> std::string {
    try {
      (void)Layout::plan(std::move(arrays), std::move(options));
    } catch (const FormatError& error) {
      return error.what();
    }
    return "no error";
  };
  CHECK(error_of({{"a", DType::u8, {1}}, {"a", DType::u8, {1}}}) == "two arrays have the name 'a'");
  CHECK(error_of({{"__metadata__", DType::u8, {1}}}).find("reserved") != std::string::npos);
  CHECK(error_of({{"\xff", DType::u8, {1}}}).find("UTF-8") != std::string::npos);
  CHECK(error_of({{"a", DType::f4, {3}}}).find("whole bytes") != std::string::npos);
  CHECK(error_of({{"a", DType::f64, {UINT64_MAX, 8}}}).find("the maximum size of a file") != std::string::npos);
  constexpr std::uint64_t huge = UINT64_MAX / 2 - 10'000;
  CHECK(error_of({{"a", DType::u8, {huge}}, {"b", DType::u8, {huge}}}).find("the maximum size of a file") !=
        std::string::npos);
  CHECK(error_of({{"two\nlines", DType::f4, {3}}}).starts_with("'two\\u000alines'"));
  CHECK(error_of({{std::string(1'000'000, 'n'), DType::f4, {3}}}).size() < 300);
  LayoutOptions odd;
  odd.align = 100;
  CHECK(error_of({}, odd).find("power of two") != std::string::npos);
  LayoutOptions aligned;
  aligned.align = 64;
  CHECK(error_of({{"#0", DType::u8, {1}}}, aligned).find("fillers") != std::string::npos);
  CHECK(error_of({{"#0", DType::u8, {1}}}) == "no error");
  LayoutOptions reserved;
  reserved.metadata["onecopy"] = "x";
  CHECK(error_of({}, reserved).find("reserved") != std::string::npos);
}

TEST_CASE("sizes that no file has are refused before anything is allocated for them, and none wraps") {
  LayoutOptions options;
  options.align = std::uint64_t{2} << 20U;
  constexpr std::uint64_t largest = UINT64_MAX / 2;
  for (const bool checksum : {false, true}) {
    options.checksum = checksum;
    CHECK_THROWS_AS(Layout::plan({{"a", DType::u8, {largest}}}, options), FormatError);
    // The filler behind the first ends beyond the largest file; with the others, 64 bits have turned round.
    CHECK_THROWS_AS(
        Layout::plan({{"a", DType::u8, {largest}}, {"b", DType::u8, {largest}}, {"c", DType::u8, {3}}}, options),
        FormatError);
  }
  // 2^32 checksums: 16 GiB of them, and a header that no reader accepts.
  CHECK_THROWS_WITH_AS(Layout::plan({{"a", DType::u8, {std::uint64_t{1} << 53U}}}, {}),
                       "the header would exceed the 100 MB that readers accept", FormatError);
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

}  // namespace onecopy
