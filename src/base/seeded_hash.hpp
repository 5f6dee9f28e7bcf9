// The hash of keys that come from files: names of arrays, fields of rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace onecopy {

// A random number of this process. Without it, keys chosen to collide would make reading take quadratic time.
std::uint64_t hash_seed();

std::uint64_t seeded_hash(std::string_view bytes, std::uint64_t seed = hash_seed()) noexcept;

// For the standard library's tables: std::hash has no seed.
struct SeededHash {
  std::size_t operator()(std::string_view key) const noexcept { return seeded_hash(key); }
};

}  // namespace onecopy
