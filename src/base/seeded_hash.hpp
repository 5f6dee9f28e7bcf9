// The hash of keys that come from files: names of arrays, fields of rows.
#pragma once

#include <cstdint>
#include <string_view>

namespace onecopy {

// A random number of this process. Without it, keys chosen to collide would make reading a file quadratic.
std::uint64_t hash_seed();

std::uint64_t seeded_hash(std::string_view bytes, std::uint64_t seed = hash_seed()) noexcept;

}  // namespace onecopy
