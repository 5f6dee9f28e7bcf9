#include <chrono>
#include <future>

#include "base/numbers.hpp"
#include "base/rounding.hpp"
#include "base/seeded_hash.hpp"
#include "onecopy/base/bytes.hpp"
#include "onecopy/base/crc32c.hpp"
#include "onecopy/base/dtype.hpp"
#include "onecopy/base/environment.hpp"
#include "onecopy/base/error.hpp"
#include "onecopy/base/interrupt.hpp"
#include "onecopy/base/pieces.hpp"
#include "onecopy/base/version.hpp"
#include "precompiled.hpp"
#include "scratch_folder.hpp"

namespace onecopy {
namespace {

__extension__ using Wide = unsigned __int128;

std::uint64_t near_an_edge(std::mt19937_64& random) {
  constexpr std::uint64_t top = std::uint64_t{1} << 63U;
  const std::uint64_t wobble = random() % 5;
  switch (random() % 5) {
    case 0: return wobble;
    case 1: return top - 2 + wobble;
    case 2: return std::numeric_limits<std::uint64_t>::max() - wobble;
    case 3: return random() >> (random() % 64);
    default: return (random() % 1000) * 4096 + wobble;
  }
}

}  // namespace

TEST_CASE("the hash of keys that come from files depends on a seed, and on every byte") {
  const std::string key = "encoder.layers.11.attention.weight";
  CHECK(seeded_hash(key) == seeded_hash(std::string(key)));
  CHECK(seeded_hash(key, 1) != seeded_hash(key, 2));
  CHECK(SeededHash()(key) == seeded_hash(key, hash_seed()));
  for (std::size_t i = 0; i < key.size(); ++i) {
    auto other = key;
    other[i] ^= 1;
    CHECK(seeded_hash(other, 1) != seeded_hash(key, 1));
    CHECK(seeded_hash(key.substr(0, i), 1) != seeded_hash(key, 1));
  }
}

TEST_CASE("numbers are rounded to multiples, of other boundaries than powers of two too") {
  for (const std::uint64_t boundary : {1ULL, 2ULL, 3ULL, 4096ULL, 5000ULL}) {
    for (std::uint64_t number = 0; number < 3 * boundary; number += 1 + boundary / 7) {
      CHECK(round_up(number, boundary) % boundary == 0);
      CHECK(round_up(number, boundary) - number < boundary);
      CHECK(number - round_down(number, boundary) < boundary);
      CHECK(round_down(number, boundary) % boundary == 0);
    }
  }
  constexpr auto top = std::numeric_limits<std::uint64_t>::max();
  CHECK(round_down(top, std::uint64_t{4096}) == top - 4095);
  CHECK(round_up(top - 4095, std::uint64_t{4096}) == top - 4095);
}

TEST_CASE("numbers are read behind their label, and written in eight digits") {
  CHECK(number_after("MemFree: 7 kB\nMemAvailable:   12345 kB", "MemAvailable:") == 12345);
  CHECK(number_after("VmLck:\t  12 kB", "VmLck:") == 12);
  CHECK(number_after("42\n", "") == 42);
  for (const char* text : {"", "MemAvailable:", "MemAvailable: max", "Mem: 1"})
    CHECK(!number_after(text, "MemAvailable:"));
  CHECK(hexadecimal(0xBEEF) == "0000beef");
}

TEST_CASE("in_bounds agrees with 128-bit arithmetic at the edges") {
  std::mt19937_64 random(7);
  for (int round = 0; round < 200'000; ++round) {
    const std::uint64_t size = near_an_edge(random);
    const std::uint64_t offset = near_an_edge(random);
    const std::uint64_t length = near_an_edge(random);
    CHECK(in_bounds(size, offset, length) == (Wide{offset} + Wide{length} <= Wide{size}));
  }
}

TEST_CASE(
    "crc32c by tables and by instruction is the division by the polynomial, wherever bytes begin, end and are cut") {
  constexpr std::string_view digits = "123456789";
  CHECK(crc32c(0, std::as_bytes(std::span(digits))) == 0xE3069283U);  // of the specification
  CHECK(crc32c(0, {}) == 0);
  const auto bytes = testing::random_bytes(40'000);
  const auto check = [&](std::size_t begin, std::size_t length) {
    const auto part = Bytes(bytes).subspan(begin, length);
    for (const std::uint32_t before : {0U, 0x12345678U}) {
      std::uint32_t state = ~before;
      for (const std::byte byte : part) {
        state ^= std::to_integer<std::uint32_t>(byte);
        for (int bit = 0; bit < 8; ++bit) state = (state >> 1U) ^ ((state & 1U) != 0 ? 0x82F63B78U : 0U);
      }
      CHECK(crc32c(before, part) == ~state);
      CHECK(crc32c_portable(before, part) == ~state);
      CHECK(crc32c(crc32c(before, part.first(length / 3)), part.subspan(length / 3)) == ~state);
    }
  };
  for (std::size_t begin = 0; begin < 20; ++begin)
    for (std::size_t length = 0; length < 80; ++length) check(begin, length);
  for (const std::size_t length : {12287U, 12288U, 12289U, 24575U, 24576U, 36864U, 39990U})  // in three streams
    for (const std::size_t begin : {0U, 1U, 9U}) check(begin, length);
}

TEST_CASE("the table of types is in the order of its enum, and names lead back") {
  for (std::size_t i = 0; i < dtype_table.size(); ++i) {
    CHECK(static_cast<std::size_t>(dtype_table[i].dtype) == i);
    CHECK(parse_dtype(dtype_table[i].name) == dtype_table[i].dtype);
  }
  CHECK(parse_dtype("F12") == std::nullopt);
  CHECK(item_alignment(DType::f4) == 1);
  CHECK(item_alignment(DType::u64) == 8);
}

TEST_CASE("an OsError says operation, path and reason") {
  const OsError plain("open", "/a/b", ENOENT);
  CHECK(std::string_view(plain.what()) == "open '/a/b': No such file or directory");
  CHECK(plain.code() == ENOENT);
  const OsError detailed("map", "/a/b", EINVAL, "the file is odd");
  CHECK(std::string_view(detailed.what()) == "map '/a/b': the file is odd");
}

TEST_CASE("every piece is worked on once, by any number of threads, and one that fails stops the others") {
  using Work = std::function<bool(std::uint64_t)>;
  const auto watch = [](std::uint64_t count, unsigned threads, const Work& work) {
    const auto watched = watch_pieces(count, threads, std::make_shared<Work>(work), std::chrono::hours(1));
    CHECK(!watched.stalled);
    CHECK(!watched.left);
  };
  const auto call = [](std::uint64_t count, unsigned threads, const Work& work) {
    (void)for_each_piece(count, threads, [&](std::uint64_t piece) noexcept { return work(piece); });
  };
  for (const auto& visit : std::array<std::function<void(std::uint64_t, unsigned, const Work&)>, 2>{watch, call}) {
    for (const unsigned threads : {0U, 1U, 2U, 8U, 100U}) {
      std::vector<std::atomic<int>> done(257);
      visit(done.size(), threads, [&](std::uint64_t piece) { return ++done[piece] == 1; });
      for (const auto& count : done) CHECK(count == 1);
    }
    std::atomic<int> tried = 0;
    visit(1'000'000, 4, [&](std::uint64_t) { return ++tried < 10; });
    CHECK(tried >= 10);
    CHECK(tried < 20);
  }
}

TEST_CASE("pieces that end one after the other are waited for longer than the patience for each") {
  const auto work = std::make_shared<std::function<bool(std::uint64_t)>>([](std::uint64_t) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    return true;
  });
  CHECK_FALSE(watch_pieces(10, 1, work, std::chrono::milliseconds(800)).stalled);
}

TEST_CASE("pieces that never end are left, and what they use lives until they do") {
  std::promise<void> end;
  const auto ended = std::make_shared<std::shared_future<void>>(end.get_future());
  auto work = std::make_shared<std::function<bool(std::uint64_t)>>([ended](std::uint64_t piece) {
    if (piece == 3) ended->wait();
    return true;
  });
  const std::weak_ptr<std::function<bool(std::uint64_t)>> alive = work;
  SUBCASE("after the patience of the caller") {
    const auto watched = watch_pieces(8, 2, std::move(work), std::chrono::milliseconds(100));
    CHECK(watched.stalled);
    CHECK(watched.left);
  }
  SUBCASE("after an interrupt") {
    set_poll([] { throw std::runtime_error("interrupted"); });
    const auto watched = watch_pieces(8, 2, std::move(work), std::chrono::hours(1));
    set_poll(nullptr);
    CHECK(watched.interrupted);
    CHECK(watched.left);
  }
  CHECK(!alive.expired());
  end.set_value();
  while (!alive.expired()) std::this_thread::yield();
}

TEST_CASE("an empty variable counts as unset, and the first one that is set names the folder for temporary files") {
  constexpr std::array names{"TMPDIR", "TMP", "TEMP", "TEMPDIR"};
  std::string expected = "/tmp";
  for (const char* name : names) ::setenv(name, "", 1);
  for (auto name = names.rbegin(); name != names.rend(); ++name) {
    CHECK(Environment::now().temporary == expected);
    expected = std::string("/for/") + *name;
    ::setenv(*name, expected.c_str(), 1);
  }
  CHECK(Environment::now().temporary == expected);
  for (const char* name : names) ::unsetenv(name);
}

TEST_CASE("the library says the version that CMake says, and perhaps that it is a candidate") {
  CHECK(version().starts_with(ONECOPY_NUMBERS));
  CHECK(version().size() <= std::string_view(ONECOPY_NUMBERS).size() + 6);
}

}  // namespace onecopy
