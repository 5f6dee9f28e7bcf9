// What the columns of a builder share: the spool, and the space for their types.
#pragma once

#include <algorithm>
#include <cstdint>

#include "files/writing/spool.hpp"
#include "onecopy/formats/record_schema.hpp"

namespace onecopy::records {

// A header has at most 100 MB, and a reader keeps every type in memory. So types are counted in bytes, as they come:
// not when the file is saved, after hours of work.
class BuildSpace : public Spool {
 public:
  using Spool::Spool;

  static constexpr std::uint64_t most_bytes_of_types = 96'000'000;
  static constexpr std::uint64_t bytes_of_field = 40;  // in a shape: a reader has a dict of each

  // In the header, of a type and its buffers, which begin with the path; of a field and its first type.
  static constexpr std::uint64_t bytes_of_type(TypeKind kind, std::size_t path) noexcept {
    const bool is_text = kind == TypeKind::text || kind == TypeKind::bytes || kind == TypeKind::bigint;
    const std::uint64_t buffers = kind == TypeKind::array ? 3 : is_text ? 2 : 1;
    return 60 + buffers * bytes_of_buffer(path);
  }
  static constexpr std::uint64_t bytes_of_buffer(std::size_t path) noexcept { return std::uint64_t{path} + 100; }
  static constexpr std::uint64_t bytes_of_column(std::size_t path, std::size_t key) noexcept {
    return key + bytes_of_type(TypeKind::number, path + key);
  }

  bool has_space_for(std::uint64_t bytes) const noexcept { return bytes <= left_; }
  void take(std::uint64_t bytes) noexcept { left_ -= std::min(bytes, left_); }

 private:
  std::uint64_t left_ = most_bytes_of_types;
};

}  // namespace onecopy::records
