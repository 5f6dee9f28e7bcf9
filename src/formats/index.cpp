#include "onecopy/formats/index.hpp"

#include <bit>
#include <cstring>
#include <random>
#include <utility>

#include "formats/wire/json.hpp"
#include "onecopy/base/error.hpp"

namespace onecopy {
namespace {

// An unpredictable seed: names chosen to collide would otherwise make opening quadratic.
std::uint64_t hash_seed() {
  static const std::uint64_t seed = [] {
    std::random_device random;
    return (std::uint64_t{random()} << 32U) | random();
  }();
  return seed;
}

// Eight bytes at a time, each folded in by a 64 x 64 -> 128 bit product.
std::uint64_t hash(std::string_view name) noexcept {
  std::uint64_t state = hash_seed() ^ name.size();
  const auto mix = [&state](std::uint64_t word) {
    __extension__ using Wide = unsigned __int128;
    const Wide product = static_cast<Wide>(state ^ word) * 0x9E3779B97F4A7C15U;
    state = static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64U);
  };
  for (; name.size() >= 8; name.remove_prefix(8)) {
    std::uint64_t word = 0;
    std::memcpy(&word, name.data(), 8);
    mix(word);
  }
  std::uint64_t last = 0;
  std::memcpy(&last, name.data(), name.size());
  mix(last + name.size());
  return state;
}

}  // namespace

std::string_view to_string(Kind kind) noexcept {
  switch (kind) {
    case Kind::arrays: return "arrays";
    case Kind::structure: return "struct";
    case Kind::records: return "records";
    case Kind::image: return "image";
    case Kind::foreign: break;
  }
  return "foreign";
}

Index::Index(Parts parts) : parts_(std::move(parts)) {
  const auto& entries = parts_.entries;
  buckets_.resize(std::bit_ceil(entries.size() * 2 + 1));
  for (std::size_t i = 0; i < entries.size(); ++i) {
    std::size_t bucket = first_bucket(entries[i].name);
    for (; buckets_[bucket] != 0; bucket = next_bucket(bucket))
      if (entries[buckets_[bucket] - 1].name == entries[i].name)
        throw FormatError(json::describe(entries[i].name) + " occurs twice in the header");
    buckets_[bucket] = static_cast<std::uint32_t>(i + 1);
  }
}

std::size_t Index::first_bucket(std::string_view name) const noexcept { return hash(name) & (buckets_.size() - 1); }

const Entry* Index::find(std::string_view name) const& noexcept {
  if (buckets_.empty()) return nullptr;  // moved from
  for (std::size_t bucket = first_bucket(name); buckets_[bucket] != 0; bucket = next_bucket(bucket))
    if (const Entry& entry = parts_.entries[buckets_[bucket] - 1]; entry.name == name) return &entry;
  return nullptr;
}

}  // namespace onecopy
