// arrays: a file of named arrays, opened by mapping and used in place.
//
//     const auto model = ArrayFile::open("model.safetensors");
//     Bytes weights = model.bytes("encoder.weight");   // throws std::out_of_range if the name is missing
//
// Ownership: a copy shares mapping and index, so that views and jobs can outlive the ArrayFile they came from. Opening
// reads the header (with pread: a file truncated meanwhile is an error, not a signal) and touches no data. Threads:
// any.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "onecopy/base/bytes.hpp"
#include "onecopy/files/mapping.hpp"
#include "onecopy/formats/index.hpp"

namespace onecopy {

// What happens to the JSON index of a sharded model: it is refused, as text, or opened as a file without arrays whose
// container is "shard index", for a caller that opens the shards.
enum class ShardIndex : std::uint8_t { refuse, accept };

class ArrayFile {
 public:
  // Throws OsError (EINVAL if `options` select a part of the file), or FormatError with the path.
  static ArrayFile open(const std::filesystem::path& path, const MappingOptions& options = {},
                        ShardIndex index = ShardIndex::refuse);

  // The same for an open descriptor, such as that of a memory file. It is duplicated; the caller keeps its own. `name`
  // stands for the path in errors.
  static ArrayFile from_descriptor(int fd, std::string name, const MappingOptions& options = {},
                                   ShardIndex index = ShardIndex::refuse);

  const Index& index() const& noexcept ONECOPY_LIFETIMEBOUND { return *index_; }
  const Index& index() const&& = delete;
  const std::shared_ptr<const Mapping>& mapping() const& noexcept ONECOPY_LIFETIMEBOUND { return mapping_; }
  const std::shared_ptr<const Mapping>& mapping() const&& = delete;

  Bytes bytes(const Entry& entry) const& noexcept ONECOPY_LIFETIMEBOUND;
  Bytes bytes(const Entry& entry) const&& = delete;
  Bytes bytes(std::string_view name) const& ONECOPY_LIFETIMEBOUND;
  Bytes bytes(std::string_view name) const&& = delete;

  // Rows [begin, end) along the first axis: contiguous, so only their pages are ever read. For a rank of a
  // tensor-parallel group. Throws std::out_of_range beyond the extent, or if rows do not begin at a byte (F4, F6).
  Bytes rows(std::string_view name, std::uint64_t begin, std::uint64_t end) const& ONECOPY_LIFETIMEBOUND;
  Bytes rows(std::string_view name, std::uint64_t begin, std::uint64_t end) const&& = delete;

  const Entry& entry(std::string_view name) const& ONECOPY_LIFETIMEBOUND;  // throws std::out_of_range
  const Entry& entry(std::string_view name) const&& = delete;

  // Where these arrays lie, for warm, evict, pin and residency; everything: the whole file.
  std::vector<ByteRange> ranges(std::optional<std::span<const std::string>> names) const;

 private:
  ArrayFile(std::shared_ptr<const Mapping> mapping, Index index);
  static ArrayFile of(Mapping opened, ShardIndex index);

  std::shared_ptr<const Mapping> mapping_;
  std::shared_ptr<const Index> index_;
};

}  // namespace onecopy
