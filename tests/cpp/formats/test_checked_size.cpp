#include "formats/checked_size.hpp"
#include "onecopy/base/bytes.hpp"
#include "precompiled.hpp"

namespace onecopy {

TEST_CASE("checked_size agrees with 128-bit arithmetic, step by step") {
  __extension__ using Wide = unsigned __int128;
  std::mt19937_64 random(7);
  for (int round = 0; round < 20'000; ++round) {
    std::vector<std::uint64_t> shape(random() % 5);
    for (auto& extent : shape) extent = random() % 8 == 0 ? 0 : random() >> (random() % 64);
    const std::uint64_t unit = random() % 4 == 0 ? 0 : random() >> (random() % 64);
    const std::uint64_t largest = random() % 2 == 0 ? UINT64_MAX : INT64_MAX;
    Wide product = unit == 0 ? 1 : unit;
    bool is_empty = unit == 0;
    for (const std::uint64_t extent : shape) {
      is_empty = is_empty || extent == 0;
      if (extent != 0 && product <= UINT64_MAX) product *= extent;
    }
    const auto size = checked_size(shape, unit, largest);
    CHECK(size.has_value() == (product <= largest));
    if (size) CHECK(*size == (is_empty ? 0 : static_cast<std::uint64_t>(product)));
  }
}

TEST_CASE("little_endian reads the lowest byte first") {
  const std::vector<std::byte> bytes{std::byte{1}, std::byte{2}, std::byte{0}, std::byte{0xFF}};
  CHECK(little_endian(bytes) == 0xFF000201);
  CHECK(little_endian(Bytes(bytes).first(2)) == 0x201);
  CHECK(little_endian({}) == 0);
}

}  // namespace onecopy
