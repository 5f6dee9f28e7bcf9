#include "onecopy/formats/index.hpp"

#include <bit>
#include <utility>

#include "base/seeded_hash.hpp"
#include "formats/wire/json.hpp"
#include "onecopy/base/error.hpp"

namespace onecopy {
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
        reject(FormatError::inconsistent, json::describe(entries[i].name) + " occurs twice in the header");
    buckets_[bucket] = static_cast<std::uint32_t>(i + 1);
  }
}

std::size_t Index::first_bucket(std::string_view name) const noexcept {
  return seeded_hash(name) & (buckets_.size() - 1);
}

const Entry* Index::find(std::string_view name) const& noexcept {
  if (buckets_.empty()) return nullptr;  // moved from
  for (std::size_t bucket = first_bucket(name); buckets_[bucket] != 0; bucket = next_bucket(bucket))
    if (const Entry& entry = parts_.entries[buckets_[bucket] - 1]; entry.name == name) return &entry;
  return nullptr;
}

}  // namespace onecopy
