// The layout of a safetensors file for mapping (docs/formats/file.md), computed before a byte is written.
//
// A Layout is immutable: any thread may use it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "onecopy/base/bytes.hpp"
#include "onecopy/base/dtype.hpp"
#include "onecopy/formats/index.hpp"

namespace onecopy {

struct ArraySpec {
  std::string name;
  DType dtype = DType::u8;
  std::vector<std::uint64_t> shape;
};

struct LayoutOptions {
  Kind kind = Kind::arrays;
  std::map<std::string, std::string, std::less<>> metadata;  // "format" is "pt" unless given here
  std::string schema;                                        // JSON; empty: none
  std::optional<std::uint64_t> align;  // bytes, a power of two from 64 to 2 MiB; every array starts on it
  bool checksum = true;
  std::uint64_t least_data_offset = 0;  // where existing data begins: the header is padded up to it
};

class Layout {
 public:
  static constexpr std::uint64_t checksum_block = std::uint64_t{2} << 20U;  // cut at multiples of the file offset
  static constexpr std::uint64_t data_alignment = 4096;

  // In the order of the data section. `array` counts the specs as given; none: a filler, to be written as zeros.
  struct Placement {
    std::optional<std::size_t> array;
    std::uint64_t offset = 0;  // bytes from the start of the file
    std::uint64_t length = 0;
  };

  // Throws FormatError: a repeated or reserved name, a size over 2^63, a header over 100 MB, an invalid alignment.
  static Layout plan(std::vector<ArraySpec> arrays, LayoutOptions options);

  std::span<const Placement> placements() const& noexcept ONECOPY_LIFETIMEBOUND { return placements_; }
  std::span<const Placement> placements() const&& = delete;
  std::span<const ArraySpec> arrays() const& noexcept ONECOPY_LIFETIMEBOUND { return arrays_; }
  std::span<const ArraySpec> arrays() const&& = delete;

  std::uint64_t data_offset() const noexcept { return data_offset_; }
  std::uint64_t file_size() const noexcept { return file_size_; }
  std::size_t block_count() const noexcept;  // of checksums; 0 without them
  bool checksum() const noexcept { return options_.checksum; }

  // The bytes [0, data_offset()), with these checksums of the blocks; the length does not depend on the checksums.
  std::string header(std::span<const std::uint32_t> blocks) const;

 private:
  Layout() = default;
  void place();
  void move_behind_header();
  void fill_to(std::uint64_t boundary);

  struct Json {
    std::string text;
    std::size_t ours_end;  // where the value of __metadata__["onecopy"] ends, its quote included
  };
  Json json(std::span<const std::uint32_t> blocks) const;

  std::vector<ArraySpec> arrays_;
  LayoutOptions options_;
  std::vector<Placement> placements_;
  std::uint64_t data_offset_ = 0;
  std::uint64_t file_size_ = 0;
};

}  // namespace onecopy
