#include <doctest/doctest.h>

#include <array>

#include "onecopy/arrays/array_writer.hpp"
#include "onecopy/arrays/verify.hpp"
#include "onecopy/page_cache/warm.hpp"
#include "scratch_folder.hpp"

namespace onecopy {
namespace {

constexpr std::uint64_t block = Layout::checksum_block;

// Three arrays over four blocks. What verifying finds is in tests/python/arrays/test_verify.py.
struct Saved {
  Saved() {
    const std::array arrays{NamedArray{{"a", DType::u8, {a.size()}}, a}, NamedArray{{"b", DType::u8, {b.size()}}, b},
                            NamedArray{{"c", DType::u8, {c.size()}}, c}};
    save(folder / "file", arrays);
  }

  ArrayFile open() const { return ArrayFile::open(folder / "file"); }

  testing::ScratchFolder folder;
  std::vector<std::byte> a = testing::random_bytes(2 * block + 640, 1);
  std::vector<std::byte> b = testing::random_bytes(block + 6400, 2);
  std::vector<std::byte> c = testing::random_bytes(block / 2 + block / 4, 3);
};

}  // namespace

TEST_CASE("empty lists of ranges and of names are no bytes") {
  const Saved saved;
  const auto file = saved.open();
  CHECK(verified_ranges(file, std::vector<ByteRange>{}).empty());
  CHECK(verify(file, std::vector<std::string>{}).bytes == 0);
  CHECK(verify(file).bytes == file.mapping()->bytes().size() - file.index().data_offset());
}

TEST_CASE_FIXTURE(InFolder, "a file without data verifies by its header alone") {
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
