// Damaged files: 10,000 flipped bits and truncations at every 4 KiB. No crash, whatever is touched afterwards (this is
// built with address and undefined-behaviour sanitizers), and verify() finds every one.
#include "onecopy/base/error.hpp"
#include "onecopy/structs/structs.hpp"
#include "precompiled.hpp"
#include "scratch_folder.hpp"

using onecopy::open;
using onecopy::OwningSpan;
using onecopy::save;

namespace {

struct Entry {
  std::uint64_t hash;
  std::array<std::uint32_t, 2> range;
};

struct Shard {
  std::string name;
  OwningSpan<Entry> entries;
  std::vector<std::uint16_t> lengths;
  std::optional<double> load;
  bool sealed = false;
};

struct Table {
  std::uint64_t seed = 3;
  OwningSpan<std::uint64_t> words;
  OwningSpan<Shard> shards;
  std::array<OwningSpan<std::uint8_t>, 2> parts;
  std::vector<std::vector<std::string>> names;
};

Table table(std::size_t words) {
  Table all;
  all.words = std::vector<std::uint64_t>(words, 7);
  std::vector<Shard> shards(20);
  for (std::size_t i = 0; i < shards.size(); ++i) {
    shards[i].name = "shard " + std::to_string(i);
    shards[i].entries = std::vector<Entry>(i, Entry{i, {1, 2}});
    shards[i].lengths.resize(i % 3);
    if (i % 2 == 0) shards[i].load = 0.5;
    shards[i].sealed = i % 2 == 1;
  }
  all.shards = std::move(shards);
  all.parts = {std::vector<std::uint8_t>(100, 1), std::vector<std::uint8_t>(3, 2)};
  all.names = {{"a", "b"}, {}, {"c"}};
  return all;
}

// Reads every byte that a program could reach.
std::uint64_t touch(const Table& table) {
  std::uint64_t sum = table.seed;
  for (const auto word : table.words) sum += word;
  for (const auto& shard : table.shards) {
    for (const char c : shard.name) sum += static_cast<unsigned char>(c);
    for (const auto& entry : shard.entries) sum += entry.hash + entry.range[0] + entry.range[1];
    for (const auto length : shard.lengths) sum += length;
    sum += shard.sealed ? 1U : 0U;
    sum += shard.load ? 1U : 0U;
  }
  for (const auto& part : table.parts)
    for (const auto byte : part) sum += byte;
  for (const auto& names : table.names)
    for (const auto& name : names) sum += name.size();
  return sum;
}

constexpr onecopy::OpenOptions mapped{.mode = onecopy::Mode::map};
constexpr onecopy::OpenOptions copied{.mode = onecopy::Mode::copy};
constexpr onecopy::OpenOptions verified{.verify = true, .threads = 1};

bool opens(const std::filesystem::path& path, const onecopy::OpenOptions& options) {
  try {
    const auto file = open<Table>(path, options);
    volatile std::uint64_t sum = touch(*file);
    static_cast<void>(sum);
    return true;
  } catch (const onecopy::FormatError&) {
  } catch (const onecopy::OsError&) {
  }
  return false;
}

}  // namespace

TEST_CASE_FIXTURE(onecopy::AtPath, "10,000 flipped bits: an error or a value, never a crash, and verify finds each") {
  save(path, table(200));
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

TEST_CASE_FIXTURE(onecopy::AtPath, "a file that was cut at any 4 KiB, or at its last bytes, is refused") {
  save(path, table(100'000));
  const auto good = onecopy::testing::read_file(path);
  for (std::size_t size = 0; size < good.size(); size += 4096) {
    std::filesystem::resize_file(path, good.size());
    folder.write("file.oc", std::span(good).first(size));
    CHECK_FALSE(opens(path, mapped));
    CHECK_FALSE(opens(path, copied));
  }
  folder.write("file.oc", std::span(good).first(good.size() - 1));
  CHECK_FALSE(opens(path, mapped));
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
}
