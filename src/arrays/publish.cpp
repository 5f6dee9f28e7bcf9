#include "onecopy/arrays/publish.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>
#include <vector>

#include "onecopy/base/crc32c.hpp"
#include "onecopy/base/error.hpp"
#include "onecopy/formats/block_checksums.hpp"

namespace onecopy {
namespace {

// The blocks of the data section: the array, and the zeros behind it that some kinds of files have.
std::vector<std::uint32_t> checksums_of(ScratchFile& scratch, const Layout& layout) {
  const ByteRange section{layout.data_offset(), layout.file_size() - layout.data_offset()};
  const BlockChecksums blocks(section, Layout::checksum_block, {});
  const std::uint64_t size = std::as_const(scratch).bytes().size();
  std::vector<std::uint32_t> found(layout.block_count());
  std::vector<std::byte> buffer(std::min<std::uint64_t>(section.length, Layout::checksum_block));
  for (std::size_t number = 0; number < found.size(); ++number) {
    const ByteRange block = blocks.range(number);
    const std::uint64_t at = block.offset - section.offset;
    const std::uint64_t held = at < size ? std::min(block.length, size - at) : 0;
    const auto bytes = std::span(buffer).first(block.length);
    scratch.read(std::min(at, size), bytes.first(held));
    std::ranges::fill(bytes.subspan(held), std::byte{0});
    found[number] = crc32c(0, bytes);
    if (held != 0 && scratch.max_resident()) (void)scratch.release(std::array{ByteRange{at, held}});
  }
  return found;
}

}  // namespace

std::uint64_t head_for(const ArraySpec& spec, const LayoutOptions& options, std::uint64_t spare) {
  auto wide = options;
  wide.least_data_offset = Layout::plan({spec}, options).data_offset() + spare;
  return Layout::plan({spec}, wide).data_offset();
}

void publish(ScratchFile& scratch, const std::filesystem::path& path, const ArraySpec& spec, LayoutOptions options,
             WriteOptions writing) {
  options.least_data_offset = scratch.head();
  const auto layout = Layout::plan({spec}, std::move(options));
  if (layout.data_offset() != scratch.head())
    throw OsError("save", path.string(), EOVERFLOW,
                  "the header needs " + std::to_string(layout.data_offset()) + " bytes, and the scratch file has " +
                      std::to_string(scratch.head()) + " before its data");
  if (layout.placements().front().length != std::as_const(scratch).bytes().size())
    throw FormatError("'" + spec.name + "' is not of the size of the scratch file");
  std::vector<std::uint32_t> blocks;
  if (layout.checksum()) blocks = checksums_of(scratch, layout);
  const std::string header = layout.header(blocks);
  scratch.publish(path, std::as_bytes(std::span(header)), layout.file_size(), writing);
}

}  // namespace onecopy
