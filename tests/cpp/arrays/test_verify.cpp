#include <doctest/doctest.h>

#include <array>
#include <fstream>

#include "onecopy/arrays/array_writer.hpp"
#include "onecopy/arrays/verify.hpp"
#include "onecopy/page_cache/page_cache.hpp"
#include "scratch_folder.hpp"

namespace onecopy {
namespace {

constexpr std::uint64_t block = Layout::checksum_block;

// Three arrays over four blocks: "a" in 0 to 2, "b" in 2 and 3, "c" in 3.
struct Saved {
  Saved() {
    const std::array arrays{NamedArray{{"a", DType::u8, {a.size()}}, a}, NamedArray{{"b", DType::u8, {b.size()}}, b},
                            NamedArray{{"c", DType::u8, {c.size()}}, c}};
    save(folder / "file", arrays);
  }

  void flip(std::uint64_t offset) const {
    std::fstream file(folder / "file", std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(offset));
    const auto byte = static_cast<char>(file.get() ^ 0x2A);  // of a space it makes a line feed: JSON all the same
    file.seekp(static_cast<std::streamoff>(offset));
    file.put(byte);
  }

  ArrayFile open(Mode mode = Mode::map) const {
    MappingOptions options;
    options.mode = mode;
    return ArrayFile::open(folder / "file", options);
  }

  testing::ScratchFolder folder;
  std::vector<std::byte> a = testing::random_bytes(2 * block + 640, 1);
  std::vector<std::byte> b = testing::random_bytes(block + 6400, 2);
  std::vector<std::byte> c = testing::random_bytes(block / 2 + block / 4, 3);
};

std::vector<BadBlock> damage(const ArrayFile& file, std::optional<std::span<const std::string>> names = everything) {
  try {
    verify(file, names);
  } catch (const ChecksumError& error) {
    return error.blocks();
  }
  return {};
}

}  // namespace

TEST_CASE("a file as it was written verifies, mapped and copied, in whole blocks") {
  const Saved saved;
  for (const Mode mode : {Mode::map, Mode::copy}) {
    const auto file = saved.open(mode);
    const std::uint64_t data = file.mapping()->bytes().size() - file.index().data_offset();
    CHECK(verify(file).bytes == data);
    CHECK(verify(file, {}, 1).threads == 1);
    CHECK(verify(file, std::array{std::string("a")}).bytes == 3 * block - file.index().data_offset());
    CHECK(verify(file, std::array{std::string("a"), std::string("b"), std::string("c")}).bytes == data);
    CHECK_THROWS_AS(verify(file, std::array{std::string("d")}), std::out_of_range);
  }
}

TEST_CASE("a flip is found in its block, and nowhere else; the error names who is in it") {
  const Saved saved;
  const auto whole = saved.open();
  const auto place = whole.entry("b").offset + 1;
  saved.flip(place);
  for (const Mode mode : {Mode::map, Mode::copy}) {
    const auto file = saved.open(mode);
    const auto bad = damage(file);
    REQUIRE(bad.size() == 1);
    CHECK(bad[0].number == place / block);
    CHECK(in_bounds(bad[0].range.length, place - bad[0].range.offset, 1));
    CHECK(bad[0].found != bad[0].expected);
    CHECK(bad[0].names == std::vector<std::string>{"a", "b"});
    CHECK(damage(file, std::array{std::string("a")}).size() == 1);  // the block is shared
    CHECK(damage(file, std::array{std::string("c")}).empty());
  }
}

TEST_CASE("every damaged block is reported, in the order of the file") {
  const Saved saved;
  const auto size = std::filesystem::file_size(saved.folder / "file");
  for (const std::uint64_t at : {size - 1, block, 2 * block}) saved.flip(at);
  const auto file = saved.open();
  const auto bad = damage(file);
  REQUIRE(bad.size() == 3);
  CHECK(bad[0].number == 1);
  CHECK(bad[1].number == 2);
  CHECK(bad[2].number == (size - 1) / block);
  CHECK_THROWS_WITH_AS(verify(file), doctest::Contains("3 of"), ChecksumError);
}

TEST_CASE("warming verifies in the same pass, also what is in memory already") {
  const Saved saved;
  for (const bool cold : {true, false}) {
    const auto file = saved.open();
    if (cold) (void)evict(*file.mapping());
    WarmOptions options;
    options.inspector = make_verifier(file);
    const auto report = warm(*file.mapping(), verified_ranges(file), options);
    CHECK(report.complete);
    CHECK(report.verified == file.mapping()->bytes().size() - file.index().data_offset());
  }
  saved.flip(2 * block + 5);
  const auto file = saved.open();
  CHECK_FALSE(warm(*file.mapping()).verified);
  WarmOptions options;
  options.inspector = make_verifier(file);
  CHECK_THROWS_AS(warm(*file.mapping(), verified_ranges(file), options), ChecksumError);
}

TEST_CASE("empty lists of ranges and of names are no bytes") {
  const Saved saved;
  const auto file = saved.open();
  CHECK(verified_ranges(file, std::vector<ByteRange>{}).empty());
  CHECK(verify(file, std::vector<std::string>{}).bytes == 0);
  CHECK(verify(file).bytes == file.mapping()->bytes().size() - file.index().data_offset());
}

TEST_CASE("what a budget leaves out is not said to be verified") {
  const Saved saved;
  const auto file = saved.open();
  (void)evict(*file.mapping());
  WarmOptions options;
  options.budget = 2 * block;
  options.inspector = make_verifier(file);
  const auto report = warm(*file.mapping(), verified_ranges(file), options);
  if (report.cached_before == 0) {
    CHECK_FALSE(report.complete);
    CHECK(report.verified <= 2 * block);
  }
}

TEST_CASE("without checksums, and without a header that vouches for them, there is nothing to verify against") {
  const testing::ScratchFolder folder;
  const auto data = testing::random_bytes(5000);
  const std::array arrays{NamedArray{{"a", DType::u8, {data.size()}}, data}};
  LayoutOptions options;
  options.checksum = false;
  save(folder / "bare", arrays, options);
  CHECK_THROWS_AS(verify(ArrayFile::open(folder / "bare")), NoChecksum);
  const Saved saved;
  saved.flip(4000);  // the padding of the header
  const auto file = saved.open();
  CHECK(file.index().kind() == Kind::foreign);
  CHECK_THROWS_WITH_AS(verify(file), doctest::Contains("header"), ChecksumError);
}

TEST_CASE("a file that is truncated meanwhile is an error that says where, not a signal") {
  const Saved saved;
  const auto file = saved.open();
  std::filesystem::resize_file(saved.folder / "file", 2 * block + 100);
  try {
    verify(file);
    FAIL("verified what is not there");
  } catch (const DataLost& error) {
    CHECK(error.offset() == 2 * block + 100);
  }
}

TEST_CASE("a file without data verifies by its header alone") {
  const testing::ScratchFolder folder;
  save(folder / "file", {});
  CHECK(verify(ArrayFile::open(folder / "file")).bytes == 0);
}

TEST_CASE("a job on several files refuses an inspector that would compare nothing") {
  const Saved saved;
  const auto file = saved.open();
  WarmOptions options;
  options.inspector = make_verifier(file);
  CHECK_THROWS_AS((void)WarmJob::start({{file.mapping(), everything, nullptr}}, options), std::invalid_argument);
  CHECK(WarmJob::start(file.mapping(), everything, options).wait().verified > 0);
}

}  // namespace onecopy
