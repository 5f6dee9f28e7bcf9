// formats: parses bytes into an Index, and computes the layout of new files. Pure functions: no files, no threads.
//
// An `Index` that exists is valid: every entry lies inside the file, has a known type, and its shape, type and length
// agree; names are distinct. Later code does not check again. An Index is immutable: any thread may use it.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "onecopy/base/bytes.hpp"
#include "onecopy/base/dtype.hpp"
#include "onecopy/formats/block_checksums.hpp"

namespace onecopy {

// One named array. Name, shape, strides and type are owned by the Index, or literals.
struct Entry {
  std::string_view name;
  DType dtype = DType::u8;
  std::span<const std::uint64_t> shape;  // empty: a scalar
  std::uint64_t offset = 0;              // bytes from the start of the file
  std::uint64_t length = 0;              // bytes
  // In elements, one for each axis; empty: the last axis runs fastest.
  std::span<const std::uint64_t> strides;
  // The file's name of a type that DType does not have ("Q4_K"), of which these are `length` bytes; else empty.
  std::string_view raw_type;

  ByteRange range() const noexcept { return {offset, length}; }
};

// The contents of a file. `foreign`: another tool wrote it.
enum class Kind : std::uint8_t { foreign, arrays, structure, records, image };

std::string_view to_string(Kind kind) noexcept;

enum class HeaderCheck : std::uint8_t {
  absent,  // the file carries no checksum of its header
  matched,
  mismatch,  // damaged, or re-saved by another tool that kept onecopy's metadata
};

class Index {
 public:
  // The result of a format's parser: entries that it has checked, and the texts they refer to.
  struct Parts {
    std::vector<char> header;               // unescaped names are referred to in place
    std::list<std::string> unescaped;       // names with escapes, decoded
    std::vector<std::uint64_t> dimensions;  // all shapes and strides, one after the other
    std::vector<Entry> entries;             // in the order of the header
    std::map<std::string, std::string, std::less<>> metadata;
    std::uint64_t data_offset = 0;               // where the data section begins in the file
    std::string_view container = "safetensors";  // the format, a literal
    Kind kind = Kind::foreign;
    HeaderCheck header_check = HeaderCheck::absent;
    BlockChecksums checksums;
    bool has_fillers = false;
  };

  // Throws FormatError when two entries have the same name.
  explicit Index(Parts parts);

  Index(Index&&) noexcept = default;
  Index& operator=(Index&&) noexcept = default;
  ~Index() = default;

  std::span<const Entry> entries() const& noexcept ONECOPY_LIFETIMEBOUND { return parts_.entries; }
  std::span<const Entry> entries() const&& = delete;  // `for (auto& e : parse(f).entries())` would dangle

  // Null if no entry has that name.
  const Entry* find(std::string_view name) const& noexcept ONECOPY_LIFETIMEBOUND;
  const Entry* find(std::string_view name) const&& = delete;

  const auto& metadata() const& noexcept ONECOPY_LIFETIMEBOUND { return parts_.metadata; }
  const auto& metadata() const&& = delete;

  std::uint64_t data_offset() const noexcept { return parts_.data_offset; }
  std::string_view container() const noexcept { return parts_.container; }
  Kind kind() const noexcept { return parts_.kind; }
  HeaderCheck header_check() const noexcept { return parts_.header_check; }

  // Also absent if the checksum of the header does not match: damage cannot hide by destroying the checksums.
  const BlockChecksums& checksums() const& noexcept ONECOPY_LIFETIMEBOUND { return parts_.checksums; }
  const BlockChecksums& checksums() const&& = delete;

  // True for fillers of onecopy's writer: '#'-names in a file whose metadata declares them. Listings leave them out.
  bool is_filler(const Entry& entry) const noexcept { return parts_.has_fillers && entry.name.starts_with('#'); }

 private:
  std::size_t first_bucket(std::string_view name) const noexcept;
  std::size_t next_bucket(std::size_t bucket) const noexcept { return (bucket + 1) & (buckets_.size() - 1); }

  Parts parts_;
  std::vector<std::uint32_t> buckets_;  // open addressing: 1 + the entry's number, 0: empty
};

}  // namespace onecopy
