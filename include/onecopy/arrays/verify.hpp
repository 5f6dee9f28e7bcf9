// Comparing the bytes of a file with the checksums that were stored with them (CRC-32C of every 2 MiB).
//
//     const VerifyReport report = verify(model);                      // throws ChecksumError, naming block and arrays
//     const auto ranges = verified_ranges(model);
//     warm(*model.mapping(), ranges, {.inspector = make_verifier(model)});   // the same in the pass that warms
//
// Mapped files are read by pread, so that a file that is truncated meanwhile is DataLost and not a signal; a private
// copy is checked where it lies. The checksums guard against accidents, not against an attacker: who can write the file
// can write them too.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "onecopy/arrays/array_file.hpp"
#include "onecopy/base/error.hpp"
#include "onecopy/residency/warm.hpp"

namespace onecopy {

// A block whose bytes are not what was written. Whole blocks are compared, so neighbours are named too.
struct BadBlock {
  std::size_t number = 0;
  ByteRange range;  // in the file
  std::uint32_t expected = 0;
  std::uint32_t found = 0;
  std::vector<std::string> names;  // of the arrays that have bytes in it
};

// `blocks` is empty where it is the header that does not agree with its checksum.
class ChecksumError : public FormatError {
 public:
  ChecksumError(const std::string& message, std::vector<BadBlock> blocks)
      : FormatError(message), blocks_(std::move(blocks)) {}

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

// All blocks that hold bytes of these arrays; no names: the whole data section. Every block is looked at before an
// error is thrown. Throws ChecksumError, NoChecksum, DataLost, OsError; std::out_of_range for a name that is not there.
VerifyReport verify(const ArrayFile& file, std::span<const std::string> names = {}, unsigned threads = 0);

// `ranges` (bytes of the file) widened to whole blocks; none: the whole file. Throws NoChecksum, ChecksumError.
std::vector<ByteRange> verified_ranges(const ArrayFile& file, std::span<const ByteRange> ranges = {});

// For WarmOptions::inspector, with ranges that were widened so; for one warming. Throws NoChecksum, ChecksumError.
std::shared_ptr<Inspector> make_verifier(const ArrayFile& file);

}  // namespace onecopy
