#include "onecopy/scratch/publish.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <exception>
#include <thread>
#include <utility>
#include <vector>

#include "base/rounding.hpp"
#include "onecopy/base/crc32c.hpp"
#include "onecopy/base/error.hpp"
#include "onecopy/base/pieces.hpp"
#include "onecopy/formats/block_checksums.hpp"
#include "os/os.hpp"

namespace onecopy {
namespace {

constexpr unsigned checksum_threads = 4;  // a few threads read the page cache at memory speed

// The blocks of the data section: the array, and the zeros behind it in some kinds of files.
class Checksums {
 public:
  Checksums(ScratchFile& scratch, const Layout& layout)
      : scratch_(scratch),
        section_{layout.data_offset(), layout.file_size() - layout.data_offset()},
        blocks_(section_, Layout::checksum_block, {}),
        size_(std::as_const(scratch).bytes().size()),
        found_(layout.block_count()) {}

  // Throws what reading throws. With a cap, one block at a time is in memory.
  std::vector<std::uint32_t> take() {
    const unsigned threads =
        scratch_.max_resident() ? 1 : std::clamp(std::thread::hardware_concurrency(), 1U, checksum_threads);
    std::atomic<bool> failed{false};
    std::exception_ptr failure;
    (void)for_each_piece(found_.size(), threads, [&](std::uint64_t number) noexcept {
      try {
        add(number);
        return true;
      } catch (...) {
        if (!failed.exchange(true)) failure = std::current_exception();
        return false;
      }
    });
    if (failure) std::rethrow_exception(failure);
    return std::move(found_);
  }

 private:
  static constexpr std::uint64_t piece = std::uint64_t{64} << 10U;  // from the page cache into the cache of a CPU

  void add(std::uint64_t number) {
    const ByteRange block = blocks_.range(number);
    const std::uint64_t at = block.offset - section_.offset;
    const std::uint64_t held = at < size_ ? std::min(block.length, size_ - at) : 0;
    std::vector<std::byte> buffer(std::min<std::uint64_t>(block.length, piece));
    std::uint32_t crc = 0;
    for (std::uint64_t done = 0; done < block.length; done += piece) {
      const auto bytes = std::span(buffer).first(std::min(piece, block.length - done));
      const auto inside = bytes.first(done < held ? std::min<std::uint64_t>(bytes.size(), held - done) : 0);
      scratch_.read(std::min(at + done, size_), inside);
      std::ranges::fill(bytes.subspan(inside.size()), std::byte{0});
      crc = crc32c(crc, bytes);
    }
    found_[number] = crc;
    if (held != 0 && scratch_.max_resident()) (void)scratch_.release(std::array{ByteRange{at, held}});
  }

  ScratchFile& scratch_;
  ByteRange section_;
  BlockChecksums blocks_;
  std::uint64_t size_;
  std::vector<std::uint32_t> found_;
};

}  // namespace

std::uint64_t head_for(const ArraySpec& spec, const LayoutOptions& options, std::uint64_t spare) {
  const std::uint64_t least = Layout::plan({spec}, options).data_offset() + spare;
  auto wide = options;
  wide.least_data_offset = round_up(least, std::uint64_t{os::page_size()});
  return Layout::plan({spec}, wide).data_offset();
}

void publish(ScratchFile& scratch, const std::filesystem::path& path, const ArraySpec& spec, LayoutOptions options,
             WriteOptions writing) {
  options.least_data_offset = scratch.head();
  const auto layout = Layout::plan({spec}, std::move(options));
  if (layout.data_offset() != scratch.head())
    throw OsError("save", path.string(), EOVERFLOW,
                  concat("the header needs ", layout.data_offset(), " bytes, but the scratch file has only ",
                         scratch.head(), " before its data"));
  if (layout.placements().front().length != std::as_const(scratch).bytes().size())
    reject(FormatError::inconsistent, "'" + spec.name + "' does not have the size of the scratch file");
  std::vector<std::uint32_t> blocks;
  if (layout.checksum()) blocks = Checksums(scratch, layout).take();
  const std::string header = layout.header(blocks);
  scratch.publish(path, std::as_bytes(std::span(header)), layout.file_size(), writing);
}

}  // namespace onecopy
