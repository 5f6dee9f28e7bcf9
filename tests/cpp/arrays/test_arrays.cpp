#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <random>

#include "onecopy/arrays/array_file.hpp"
#include "onecopy/arrays/array_writer.hpp"
#include "onecopy/base/crc32c.hpp"
#include "onecopy/base/error.hpp"
#include "scratch_folder.hpp"

namespace onecopy {
namespace {

struct Content {
  std::vector<std::vector<std::byte>> data;
  std::vector<NamedArray> arrays;
};

Content random_content(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Content content;
  const std::size_t count = random() % 9 + 1;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t size = random() % 5 == 0 ? random() % 6'000'000 : random() % 3000;
    content.data.push_back(testing::random_bytes(size * 2, seed + i));
  }
  for (std::size_t i = 0; i < count; ++i)
    content.arrays.push_back(
        {{"array." + std::to_string(i), DType::i16, {content.data[i].size() / 2}}, content.data[i]});
  return content;
}

}  // namespace

TEST_CASE("what is saved is what opens, mapped and copied") {
  const testing::ScratchFolder folder;
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    const auto content = random_content(seed);
    LayoutOptions options;
    if (seed % 3 == 1) options.align = 4096;
    save(folder / "file", content.arrays, options);
    for (const Mode mode : {Mode::map, Mode::copy}) {
      MappingOptions how;
      how.mode = mode;
      const auto file = ArrayFile::open(folder / "file", how);
      CHECK(file.index().header_check() == HeaderCheck::matched);
      for (const auto& array : content.arrays) CHECK(testing::same_bytes(file.bytes(array.spec.name), array.bytes));
    }
  }
}

TEST_CASE("the checksums in the file are those of its blocks") {
  const testing::ScratchFolder folder;
  const auto data = testing::random_bytes(5'000'000);
  const std::array arrays{NamedArray{{"a", DType::u8, {data.size()}}, data}};
  save(folder / "file", arrays);
  const auto file = ArrayFile::open(folder / "file");
  const auto bytes = testing::read_file(folder / "file");
  const auto& text = file.index().metadata().find("onecopy")->second;
  const auto at = text.find("\"data\":\"") + 8;
  const auto base64 = text.substr(at, text.find('"', at) - at);
  // Decoded the slow way: the test must not lean on the writer.
  constexpr std::string_view alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::vector<bool> stream;
  for (const char c : base64)
    if (c != '=')
      for (int bit = 5; bit >= 0; --bit) stream.push_back(((alphabet.find(c) >> bit) & 1U) != 0);
  std::vector<std::uint32_t> found;
  for (std::size_t start = 0; start + 32 <= stream.size(); start += 32) {
    std::uint32_t number = 0;
    for (std::size_t byte = 0; byte < 4; ++byte)
      for (std::size_t bit = 0; bit < 8; ++bit)
        number |= static_cast<std::uint32_t>(stream[start + byte * 8 + bit]) << (byte * 8 + 7 - bit);
    found.push_back(number);
  }
  std::vector<std::uint32_t> wanted;
  constexpr std::size_t block = std::size_t{2} << 20U;
  for (std::size_t begin = file.index().data_offset(); begin < bytes.size(); begin = (begin / block + 1) * block) {
    const std::size_t end = std::min((begin / block + 1) * block, bytes.size());
    wanted.push_back(crc32c_portable(0, Bytes(bytes).subspan(begin, end - begin)));
  }
  CHECK(found == wanted);
}

TEST_CASE("a writer that got too little or too much leaves the old file") {
  const testing::ScratchFolder folder;
  const auto old_content = random_content(1);
  save(folder / "file", old_content.arrays);
  const auto before = testing::read_file(folder / "file");
  const auto bytes = testing::random_bytes(100);
  {
    ArrayWriter writer(folder / "file", Layout::plan({{"a", DType::u8, {100}}}, {}));
    writer.write(Bytes(bytes).first(99));
    CHECK_THROWS_WITH_AS(writer.commit(), "'a' lacks its last 1 bytes", FormatError);
    writer.write(Bytes(bytes).first(1));
    CHECK_THROWS_AS(writer.write(Bytes(bytes).first(1)), FormatError);
  }
  const std::array wrong{NamedArray{{"a", DType::u8, {99}}, bytes}};
  CHECK_THROWS_AS(save(folder / "file", wrong), FormatError);
  CHECK(testing::read_file(folder / "file") == before);
  CHECK(folder.file_count() == 1);
}

TEST_CASE("a file without arrays is a file") {
  const testing::ScratchFolder folder;
  save(folder / "file", {});
  const auto file = ArrayFile::open(folder / "file");
  CHECK(file.index().entries().empty());
  CHECK(file.ranges(everything).size() == 1);
  CHECK(file.ranges(std::vector<std::string>{}).empty());
}

TEST_CASE("a part of a file is no file of arrays") {
  const testing::ScratchFolder folder;
  const auto path = folder.path() / "a.safetensors";
  save(path, {});
  CHECK_THROWS_WITH_AS((void)ArrayFile::open(path, {.offset = 8, .length = {}}), doctest::Contains("name a part of it"),
                       OsError);
  CHECK_THROWS_WITH_AS((void)ArrayFile::open(path, {.length = 8}), doctest::Contains("name a part of it"), OsError);
}

TEST_CASE("rows are the part of an array that a rank takes") {
  const testing::ScratchFolder folder;
  const auto data = testing::random_bytes(6 * 20);
  const auto packed = testing::random_bytes(3);
  const std::array arrays{NamedArray{{"w", DType::i32, {6, 5}}, data}, NamedArray{{"p", DType::f4, {2, 3}}, packed},
                          NamedArray{{"s", DType::i32, {}}, Bytes(data).first(4)}};
  save(folder / "file", arrays);
  const auto file = ArrayFile::open(folder / "file");
  CHECK(testing::same_bytes(file.rows("w", 2, 4), Bytes(data).subspan(40, 40)));
  CHECK(file.rows("w", 0, 6).size() == data.size());
  CHECK(file.rows("w", 6, 6).empty());
  CHECK_THROWS_AS((void)file.rows("w", 4, 7), std::out_of_range);
  CHECK_THROWS_AS((void)file.rows("w", 4, 3), std::out_of_range);
  CHECK_THROWS_AS((void)file.rows("w", 0, UINT64_MAX), std::out_of_range);
  CHECK_THROWS_AS((void)file.rows("p", 0, 1), std::out_of_range);
  CHECK_THROWS_AS((void)file.rows("s", 0, 1), std::out_of_range);
}

}  // namespace onecopy
