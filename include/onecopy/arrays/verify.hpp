// Comparing the bytes of a file with the checksums that were stored with them (CRC-32C of every 2 MiB).
//
//     const VerifyReport report = verify(model);                      // throws ChecksumError, naming block and arrays
//     const auto ranges = verified_ranges(model);
//     warm(*model.mapping(), ranges, {.inspector = make_verifier(model)});   // the same in the pass that warms
//
// Mapped files are read by pread, so that a truncated file results in DataLost, not in a signal; a private copy is
// verified in place. The checksums detect accidents, not attacks: a process that can write the file can write the
// checksums too.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "onecopy/arrays/array_file.hpp"
#include "onecopy/base/error.hpp"
#include "onecopy/page_cache/warm.hpp"

namespace onecopy {

// A block whose bytes differ from what was written. Whole blocks are compared, so adjacent arrays are named too.
struct BadBlock {
  std::size_t number = 0;
  ByteRange range;  // in the file
  std::uint32_t expected = 0;
  std::uint32_t found = 0;
  std::vector<std::string> names;  // of the arrays that have bytes in it
};

// `blocks` is empty if the header does not match its checksum.
class ChecksumError : public FormatError {
 public:
  ChecksumError(std::string path, const std::string& message, std::vector<BadBlock> blocks)
      : FormatError(inconsistent, std::move(path), message,
                    blocks.empty() ? std::nullopt : std::optional(blocks.front().range.offset)),
        blocks_(std::move(blocks)) {}

  const std::vector<BadBlock>& blocks() const noexcept { return blocks_; }

 private:
  std::vector<BadBlock> blocks_;
};

struct VerifyReport {
  std::uint64_t bytes = 0;  // compared: whole blocks
  double seconds = 0;
  double gib_per_s = 0;
  unsigned threads = 0;
};

// Verifies all blocks that hold bytes of these arrays, or of the whole file. Every block is read before an
// error is thrown. Throws ChecksumError, NoChecksum, DataLost, OsError; std::out_of_range for an unknown name.
VerifyReport verify(const ArrayFile& file, std::optional<std::span<const std::string>> names = everything,
                    unsigned threads = 0);

// `ranges` (bytes of the file) widened to whole blocks. Throws NoChecksum, ChecksumError.
std::vector<ByteRange> verified_ranges(const ArrayFile& file, Ranges ranges = everything);

// For WarmOptions::inspector, with ranges from `verified_ranges`; for one call of warm. Throws NoChecksum,
// ChecksumError.
std::shared_ptr<Inspector> make_verifier(const ArrayFile& file);

}  // namespace onecopy
