// Damaged files: 10,000 flipped bits and truncations at every 4 KiB. No crash, whatever is touched afterwards (this is
// built with address and undefined-behaviour sanitizers), and verify() finds every one.
#include "onecopy/base/error.hpp"
#include "onecopy/structs/structs.hpp"
#include "precompiled.hpp"
#include "scratch_folder.hpp"
#include "structs_index.hpp"

using onecopy::open;
using onecopy::OwningSpan;
using onecopy::save;

namespace {

fuzz::Index index(std::size_t words) {
  fuzz::Index all;
  all.words = std::vector<std::uint64_t>(words, 7);
  std::vector<fuzz::Sub> subs(20);
  for (std::size_t i = 0; i < subs.size(); ++i) {
    subs[i].name = "sub " + std::to_string(i);
    subs[i].nodes = std::vector<fuzz::Node>(i, fuzz::Node{3, 1, 2});
    if (i % 2 == 0) subs[i].parent = 5;
    subs[i].circular = i % 2 == 1;
  }
  all.extra = subs.back();
  all.subs = std::move(subs);
  all.jagged = {{1, 2}, {}, {3}};
  all.pair = {std::vector<std::uint32_t>(100, 1), std::vector<std::uint32_t>(3, 2)};
  return all;
}

constexpr onecopy::OpenOptions mapped{.mode = onecopy::Mode::map};
constexpr onecopy::OpenOptions copied{.mode = onecopy::Mode::copy};
constexpr onecopy::OpenOptions verified{.verify = true, .threads = 1};

bool opens(const std::filesystem::path& path, const onecopy::OpenOptions& options) {
  try {
    const auto file = open<fuzz::Index>(path, options);
    volatile std::uint64_t sum = fuzz::touch(*file);
    static_cast<void>(sum);
    return true;
  } catch (const onecopy::FormatError&) {
  } catch (const onecopy::OsError&) {
  }
  return false;
}

}  // namespace

TEST_CASE_FIXTURE(onecopy::AtPath, "10,000 flipped bits: an error or a value, never a crash, and verify finds each") {
  save(path, index(200));
  const auto good = onecopy::testing::read_file(path);
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  const auto put = [&](std::size_t at, std::byte byte) {
    file.seekp(static_cast<std::streamoff>(at));
    file.put(static_cast<char>(byte)).flush();
  };
  std::mt19937_64 random(20261120);
  int refused = 0;
  int missed = 0;
  for (int round = 0; round < 10'000; ++round) {
    const std::size_t at = random() % good.size();
    put(at, good[at] ^ static_cast<std::byte>(1U << random() % 8));
    refused += opens(path, round % 2 == 0 ? mapped : copied) ? 0 : 1;
    missed += opens(path, verified) ? 1 : 0;
    put(at, good[at]);
  }
  CHECK(missed == 0);
  CHECK(refused > 0);
  CHECK(opens(path, mapped));
  CHECK(opens(path, verified));
}

TEST_CASE_FIXTURE(onecopy::AtPath, "a file that was cut at any 4 KiB, or at its last byte, is refused") {
  save(path, index(100'000));
  const auto good = onecopy::testing::read_file(path);
  for (std::size_t size = good.size() - 1; size > 0; size = (size - 1) / 4096 * 4096) {
    std::filesystem::resize_file(path, size);
    CHECK_FALSE(opens(path, mapped));
    CHECK_FALSE(opens(path, copied));
  }
  folder.write("file.oc", good);
  CHECK(opens(path, mapped));
}

TEST_CASE_FIXTURE(onecopy::AtPath,
                  "verifying a whole file checks its readable tail too, where that has a block of its own") {
  constexpr std::size_t block = std::size_t{2} << 20U;
  save(path, std::vector<std::uint8_t>(block - 4096));
  auto bytes = onecopy::testing::read_file(path);
  REQUIRE(bytes.size() == block + 64);
  bytes.back() ^= std::byte{1};
  folder.write("file.oc", bytes);
  const auto file = open<OwningSpan<std::uint8_t>>(path);
  CHECK_THROWS_AS(file.verify(), onecopy::ChecksumError);
  CHECK_THROWS_AS(open<OwningSpan<std::uint8_t>>(path, {.verify = true}), onecopy::ChecksumError);
  CHECK_THROWS_AS(open<OwningSpan<std::uint8_t>>(path, {.warm = true, .verify = true}), onecopy::ChecksumError);
}
