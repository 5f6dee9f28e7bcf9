// scratch: writable memory that lives in a nameless file, so that it may be larger than the machine's.
//
//     auto canvas = ScratchFile::create(bytes, {.max_resident = std::uint64_t{512} << 20U});   // ENOSPC here
//     canvas.copy_in(offset, pixels);                 // never more than 512 MiB of it in memory
//     const Mapping image = canvas.seal();            // read-only from here on; others open its descriptor
//
// The file has no name, so it is gone with the process, however that dies. Its space is reserved when it is made: a
// full disk is an error then, and no SIGBUS later. What is written is dirty page cache: the kernel puts it on the disk
// and takes it back without swap, which it cannot do with heap memory.
//
// When not to use it: for less than some megabytes (the heap is simpler), and for random writes all over far more than
// memory holds (each touch then waits for the disk).
//
// Two ways to write. `copy_in`, `write_direct` and `fill` are calls: they keep to `max_resident`, and tell errors.
// Writing through `bytes()` is ordinary memory: no cap holds there until `wrote` or one of the two is called, and a
// disk that fails raises SIGBUS. On file systems that never write in place (btrfs, ZFS, compressed ones) space is only
// promised for the first write of each page.
//
// Ownership: ScratchFile owns addresses, descriptor and space. Threads: any number may write to different places;
// `seal`, `publish` and the move are for one. A forked child shares the memory, and has a cap of its own; fork while no
// thread is inside of a call here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "onecopy/base/bytes.hpp"
#include "onecopy/files/atomic_writer.hpp"
#include "onecopy/files/mapping.hpp"
#include "onecopy/residency/report.hpp"
#include "onecopy/scratch/report.hpp"

namespace onecopy {

struct ScratchOptions {
  // Empty: $ONECOPY_SCRATCH, else the folder for temporary files if that is on a disk of this machine, else /var/tmp.
  std::filesystem::path folder{};
  std::string name = "scratch";  // stands in errors; leads nowhere
  bool reserve = true;           // false: sparse, and a disk that is full when a page is touched is SIGBUS
  bool anywhere = false;         // also in memory (tmpfs), on servers and on file systems of other programs
  std::uint64_t head = 0;        // bytes before the data, a multiple of the page size: for a header
  std::optional<std::uint64_t> max_resident = std::nullopt;  // bytes in memory; at least `least_resident`
};

class ScratchFile {
 public:
  static constexpr std::uint64_t least_resident = std::uint64_t{1} << 20U;

  // `size` bytes of zeros. Throws OsError and leaves nothing: ENOSPC or EDQUOT with the bytes that are needed and free,
  // EOPNOTSUPP where the place is refused or can reserve nothing.
  static ScratchFile create(std::uint64_t size, const ScratchOptions& options = {});

  ScratchFile(ScratchFile&& other) noexcept;
  ScratchFile& operator=(ScratchFile&& other) noexcept;
  ~ScratchFile();

  // The address equals head() modulo 2 MiB. After seal() a write here is a fault (SIGSEGV), as in any read-only memory.
  std::span<std::byte> bytes() & noexcept ONECOPY_LIFETIMEBOUND;
  Bytes bytes() const& noexcept ONECOPY_LIFETIMEBOUND;
  std::span<std::byte> bytes() && = delete;  // would dangle
  Bytes bytes() const&& = delete;

  // Offsets are bytes of bytes(). Throw OsError: EINVAL outside of it, EPERM when sealed, what the disk says.
  void copy_in(std::uint64_t offset, Bytes from);
  // `count` pieces of equal size, one after the other in `from`, to places `stride` bytes apart: rows of a block.
  void copy_in(std::uint64_t offset, std::uint64_t stride, std::uint64_t count, Bytes from);
  // As copy_in, and nothing of it stays in memory: whole pages go past the page cache where the file system lets them
  // and `from` lies to a page as its place in the file does (both begin on one, say); else through it, to the disk and
  // out again. Waits for the disk: for pieces of megabytes, two at a time. EIO is remembered.
  void write_direct(std::uint64_t offset, Bytes from);
  void fill(ByteRange range, std::byte value);
  void wrote(ByteRange range);  // through bytes(), or by others: it counts for the cap from now on

  // Past the page tables, without leaving more than the kernel reads ahead behind; for going through all of it in
  // order.
  void read(std::uint64_t offset, std::span<std::byte> into) const;

  // Writes these bytes, or all, to the disk, then takes them out of this process and of the page cache. Ranges are
  // rounded outwards to whole pages. Never throws for what the system refuses: the report says what stayed, and flush()
  // tells of bytes that are lost. EINVAL for ranges outside.
  ReleaseReport release(std::span<const ByteRange> ranges = {});

  // Brings them into memory, as `warm` does, as far as `max_resident` allows beside what is there.
  WarmReport prefetch(std::span<const ByteRange> ranges = {}) const;

  // Everything to the disk. Throws OsError: EIO, ENOSPC, also when writing failed before; the bytes are then lost.
  void flush();

  ScratchMemory memory() const;

  // Ends writing, in this process for good: bytes() becomes read-only, and the Mapping's descriptor cannot write. May
  // be called again. A child that was forked before can still write through what it inherited. Throws OsError: EIO
  // where bytes are lost, EINVAL for 0 bytes.
  Mapping seal();
  bool sealed() const noexcept;

  // The sealed file gets a name, in place: `first` becomes the bytes before the data, `size` the file's, everything is
  // flushed, and it appears at `path` whole or not at all, as with AtomicWriter. Once. Throws OsError: EXDEV for
  // another file system, EOPNOTSUPP where it cannot get a name (copy it then); EBUSY when it is not sealed. Not
  // durable: it is not flushed (even to begin that costs half a millisecond per MB), and a power cut may leave anything
  // in it.
  void publish(const std::filesystem::path& path, Bytes first, std::uint64_t size, WriteOptions options = {});

  std::uint64_t head() const noexcept;
  std::optional<std::uint64_t> max_resident() const noexcept;
  int descriptor() const noexcept;  // stays ours, and can write
  const std::string& name() const& noexcept ONECOPY_LIFETIMEBOUND;
  const std::string& folder() const& noexcept ONECOPY_LIFETIMEBOUND;
  const std::string& reason() const& noexcept ONECOPY_LIFETIMEBOUND;  // a sentence: where it is, and why there

 private:
  struct State;
  explicit ScratchFile(std::unique_ptr<State> state) noexcept;

  std::unique_ptr<State> state_;
};

}  // namespace onecopy
