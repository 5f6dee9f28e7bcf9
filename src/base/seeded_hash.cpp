#include "base/seeded_hash.hpp"

#include <cstring>
#include <random>

namespace onecopy {

std::uint64_t hash_seed() {
  static const std::uint64_t seed = [] {
    std::random_device random;
    return (std::uint64_t{random()} << 32U) | random();
  }();
  return seed;
}

// Eight bytes at a time, each folded in by a 64 x 64 -> 128 bit product.
std::uint64_t seeded_hash(std::string_view bytes, std::uint64_t seed) noexcept {
  std::uint64_t state = seed ^ bytes.size();
  const auto mix = [&state](std::uint64_t word) {
    __extension__ using Wide = unsigned __int128;
    const Wide product = static_cast<Wide>(state ^ word) * 0x9E3779B97F4A7C15U;
    state = static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64U);
  };
  for (; bytes.size() >= 8; bytes.remove_prefix(8)) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data(), 8);
    mix(word);
  }
  std::uint64_t last = 0;
  if (!bytes.empty()) std::memcpy(&last, bytes.data(), bytes.size());
  mix(last + bytes.size());
  return state;
}

}  // namespace onecopy
