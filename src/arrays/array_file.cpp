#include "onecopy/arrays/array_file.hpp"

#include <cerrno>
#include <stdexcept>
#include <utility>

#include "arrays/detect_format.hpp"
#include "onecopy/base/error.hpp"

namespace onecopy {
ArrayFile::ArrayFile(std::shared_ptr<const Mapping> mapping, Index index)
    : mapping_(std::move(mapping)), index_(std::make_shared<const Index>(std::move(index))) {}

ArrayFile ArrayFile::of(Mapping opened, ShardIndex index) {
  const auto mapping = std::make_shared<const Mapping>(std::move(opened));
  try {
    return {mapping, read_index(*mapping, index)};
  } catch (const FormatError& error) {
    throw error.with_path(mapping->path());
  }
}

namespace {

void expect_whole(const std::string& name, const MappingOptions& options) {
  if (options.offset == 0 && !options.length) return;
  throw OsError("open", name, EINVAL,
                "a file of arrays cannot be opened in part: remove the offset and length from the options");
}

}  // namespace

ArrayFile ArrayFile::open(const std::filesystem::path& path, const MappingOptions& options, ShardIndex index) {
  expect_whole(path.string(), options);
  return of(Mapping::open(path, options), index);
}

ArrayFile ArrayFile::from_descriptor(int fd, std::string name, const MappingOptions& options, ShardIndex index) {
  expect_whole(name, options);
  return of(Mapping::from_descriptor(fd, std::move(name), options), index);
}

Bytes ArrayFile::bytes(const Entry& entry) const& noexcept {
  const Mapping& mapping = *mapping_;
  return mapping.bytes().subspan(entry.offset, entry.length);
}

Bytes ArrayFile::bytes(std::string_view name) const& { return bytes(entry(name)); }

Bytes ArrayFile::rows(std::string_view name, std::uint64_t begin, std::uint64_t end) const& {
  const Entry& found = entry(name);
  const std::uint64_t extent = found.shape.empty() ? 0 : found.shape.front();
  if (begin > end || end > extent)
    throw std::out_of_range(
        concat("'", name, "': rows [", begin, ", ", end, ") are out of range: the array has ", extent, " rows"));
  if (extent == 0 || found.length % extent != 0) {
    if (begin == end) return {};
    throw std::out_of_range(concat("'", name, "': its rows do not begin at byte boundaries"));
  }
  const std::uint64_t row = found.length / extent;
  return bytes(found).subspan(begin * row, (end - begin) * row);
}

const Entry& ArrayFile::entry(std::string_view name) const& {
  if (const Entry* found = index_->find(name); found != nullptr && !index_->is_filler(*found)) return *found;
  throw std::out_of_range(mapping_->path() + ": there is no array named '" + std::string(name) + "'");
}

std::vector<ByteRange> ArrayFile::ranges(std::optional<std::span<const std::string>> names) const {
  if (!names) return {{0, mapping_->identity().size}};
  std::vector<ByteRange> ranges;
  for (const auto& name : *names) ranges.push_back(entry(name).range());
  return ranges;
}

}  // namespace onecopy
