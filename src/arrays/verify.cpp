#include "onecopy/arrays/verify.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <exception>
#include <mutex>
#include <optional>
#include <utility>

#include "base/clock.hpp"
#include "base/numbers.hpp"
#include "files/fork_mutex.hpp"
#include "files/reading.hpp"
#include "onecopy/base/crc32c.hpp"

namespace onecopy {
namespace {

// Small enough to stay in the CPU's cache between the read and the checksum, large enough for efficient reads of a cold
// disk.
constexpr std::size_t read_size = std::size_t{256} << 10U;
constexpr std::size_t direct_read_size = std::size_t{2} << 20U;  // there is no read-ahead past the page cache

// Copying out of the page cache is the expensive half, and slower into a buffer that is not page-aligned: 4.7 GiB/s for
// both on one CPU, 3.5 where malloc placed the buffer.
struct alignas(4096) Buffer {
  std::array<std::byte, direct_read_size> bytes;
};

std::string list(std::span<const std::string> names) {
  constexpr std::size_t most = 3;
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), most); ++i) text += (i == 0 ? "'" : ", '") + names[i] + "'";
  return text + (names.size() > most ? " and " + std::to_string(names.size() - most) + " more" : "");
}

const BlockChecksums& checksums_of(const ArrayFile& file) {
  const Index& index = file.index();
  if (index.header_check() == HeaderCheck::mismatch)
    throw ChecksumError(file.mapping()->path(),
                        "the header does not match its checksum: it is damaged, or another tool rewrote the "
                        "file and kept the metadata of onecopy",
                        {});
  if (!index.checksums().present())
    throw NoChecksum(file.mapping()->path(),
                     "cannot verify the file without checksums: another tool wrote it, or checksums were disabled");
  return index.checksums();
}

class Verifier final : public Inspector {
 public:
  explicit Verifier(ArrayFile file) : file_(std::move(file)), checksums_(checksums_of(file_)) {}

  // Blocks that begin in `range`: each is in one range only, because both are cut at multiples of the block size.
  bool inspect(ByteRange range) noexcept override {
    const auto [first, last] = checksums_.covering(range);
    for (std::size_t number = first; number < last; ++number)
      if (checksums_.range(number).offset >= range.offset && !check(number)) return false;
    return true;
  }

  void leave_no_cache() override {
    if (file_.mapping()->mode() == Mode::map) past_cache_.emplace(file_.mapping()->descriptor(), Leaves::nothing);
  }

  std::uint64_t finish() override {
    if (failure_) std::rethrow_exception(failure_);
    if (!bad_.empty()) throw error();
    return verified_.load();
  }

 private:
  bool check(std::size_t number) noexcept {
    try {
      const auto range = checksums_.range(number);
      const std::uint32_t found = checksum(range);
      if (found == checksums_.expected(number)) {
        verified_.fetch_add(range.length, std::memory_order_relaxed);
      } else {
        const std::scoped_lock lock(mutex_);
        bad_.push_back({number, range, checksums_.expected(number), found, {}});
      }
      return true;
    } catch (...) {
      const std::scoped_lock lock(mutex_);
      if (!failure_) failure_ = std::current_exception();
      return false;
    }
  }

  std::uint32_t checksum(ByteRange range) const {
    const Mapping& mapping = *file_.mapping();
    if (mapping.mode() == Mode::copy) return crc32c(0, mapping.bytes().subspan(range.offset, range.length));
    thread_local const auto buffer = std::make_unique_for_overwrite<Buffer>();
    const std::uint64_t step = past_cache_ ? direct_read_size : read_size;
    std::uint32_t crc = 0;
    for (std::uint64_t done = 0; done < range.length;) {
      const auto part = std::span(buffer->bytes).first(std::min<std::uint64_t>(step, range.length - done));
      read(range.offset + done, part);
      crc = crc32c(crc, part);
      done += part.size();
    }
    return crc;
  }

  void read(std::uint64_t at, std::span<std::byte> into) const {
    const Mapping& mapping = *file_.mapping();
    if (!past_cache_) return mapping.read(at, into);
    std::size_t done = 0;
    const std::uint64_t offset = mapping.file_offset() + at;
    if (const int error = past_cache_->read(into, offset, done); error != 0)
      throw_read_error("read", mapping.path(), error, offset + done);
  }

  // In one pass over the entries, which do not overlap, and the blocks, which are sorted.
  void name_entries_of_bad_blocks() {
    std::vector<const Entry*> entries;
    for (const auto& entry : file_.index().entries())
      if (entry.length != 0) entries.push_back(&entry);
    std::ranges::sort(entries, {}, &Entry::offset);
    auto first = entries.begin();
    for (auto& block : bad_) {
      const auto& [offset, length] = block.range;
      while (first != entries.end() && (*first)->offset + (*first)->length <= offset) ++first;
      for (auto entry = first; entry != entries.end() && (*entry)->offset < offset + length; ++entry)
        block.names.emplace_back((*entry)->name);
    }
  }

  ChecksumError error() {
    std::ranges::sort(bad_, {}, &BadBlock::number);
    name_entries_of_bad_blocks();
    const BadBlock& first = bad_.front();
    const std::string message = std::to_string(bad_.size()) + " of " + std::to_string(checksums_.size()) + " blocks " +
                                (bad_.size() == 1 ? "is" : "are") + " damaged; block " + std::to_string(first.number) +
                                ", bytes [" + std::to_string(first.range.offset) + ", " +
                                std::to_string(first.range.offset + first.range.length) + ") of the file, in " +
                                list(first.names) + ": CRC-32C " + hexadecimal(first.found) + ", but " +
                                hexadecimal(first.expected) + " was stored";
    return {file_.mapping()->path(), message, bad_};
  }

  ArrayFile file_;
  const BlockChecksums& checksums_;  // of file_'s index, which stays where it is
  std::optional<Reader> past_cache_;
  std::atomic<std::uint64_t> verified_{0};
  ForkMutex mutex_;
  std::vector<BadBlock> bad_;
  std::exception_ptr failure_;
};

}  // namespace

std::vector<ByteRange> verified_ranges(const ArrayFile& file, Ranges ranges) {
  const auto& checksums = checksums_of(file);
  if (!ranges) return {{0, file.mapping()->identity().size}};
  std::vector<ByteRange> whole;
  for (const auto& range : *ranges) {
    const auto [first, last] = checksums.covering(range);
    if (first == last) continue;
    const auto begin = checksums.range(first);
    const auto end = checksums.range(last - 1);
    whole.push_back({begin.offset, end.offset + end.length - begin.offset});
  }
  return whole;
}

std::shared_ptr<Inspector> make_verifier(const ArrayFile& file) { return std::make_shared<Verifier>(file); }

VerifyReport verify(const ArrayFile& file, std::optional<std::span<const std::string>> names, unsigned threads) {
  WarmOptions options;
  options.mechanism = Mechanism::none;
  options.threads = threads;
  options.inspector = make_verifier(file);
  const auto done = warm(*file.mapping(), verified_ranges(file, file.ranges(names)), options);
  VerifyReport report;
  report.bytes = done.verified.value_or(0);
  report.seconds = done.seconds;
  report.threads = done.threads;
  report.gib_per_s = gib_per_s(report.bytes, done.seconds);
  return report;
}

}  // namespace onecopy
