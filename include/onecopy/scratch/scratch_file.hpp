// scratch: writable memory backed by a nameless file, so that it may be larger than the machine's memory.
//
//     auto canvas = ScratchFile::create(bytes, {.max_resident = std::uint64_t{512} << 20U});   // ENOSPC here
//     canvas.copy_in(offset, pixels);                 // never more than 512 MiB of it in memory
//     const Mapping image = canvas.seal();            // read-only from here on; others open its descriptor
//
// The file has no name, so it is freed when the process ends, even if it is killed. Its space is reserved when it is
// created: a full disk is an error then, not a SIGBUS later. Written data is dirty page cache: the kernel writes it to
// the disk and frees it without swap, which it cannot do with heap memory.
//
// Do not use it for less than some megabytes (the heap is simpler), or for random writes over far more data than memory
// holds (each touch then waits for the disk).
//
// Two ways to write. `copy_in`, `write_direct` and `fill` are calls: they observe `max_resident` and throw errors.
// Writes through `bytes()` are ordinary stores: no cap applies to them until `wrote` or one of the calls is made, and a
// disk that fails raises SIGBUS. On file systems that never write in place (btrfs, ZFS, compressed ones) space is only
// reserved for the first write of each page.
//
// Ownership: ScratchFile owns addresses, descriptor and space. Threads: any number may write to different places;
// `seal`, `publish` and the move need exclusive access. A forked child shares the memory, and has a cap of its own;
// fork while no thread is inside a call of this class.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "onecopy/base/bytes.hpp"
#include "onecopy/base/environment.hpp"
#include "onecopy/files/atomic_writer.hpp"
#include "onecopy/files/mapping.hpp"
#include "onecopy/page_cache/report.hpp"
#include "onecopy/scratch/report.hpp"

namespace onecopy {

struct ScratchOptions {
  // Empty: $ONECOPY_SCRATCH, else the folder for temporary files if that is on a disk of this machine, else /var/tmp.
  std::filesystem::path folder{};
  std::string name = "scratch";  // appears in errors; not a path
  bool reserve = true;           // false: sparse, and touching a page while the disk is full raises SIGBUS
  bool anywhere = false;         // also in memory (tmpfs), on servers and on file systems of user-space programs (FUSE)
  std::uint64_t head = 0;        // bytes before the data, a multiple of the page size: for a header
  std::optional<std::uint64_t> max_resident = std::nullopt;  // bytes in memory; at least `least_resident`
  Environment environment = Environment::now();              // for `folder`
};

class ScratchFile {
 public:
  static constexpr std::uint64_t least_resident = std::uint64_t{1} << 20U;

  // `size` bytes of zeros. Throws OsError and leaves nothing: ENOSPC or EDQUOT with the needed and the free bytes,
  // EOPNOTSUPP if the place is refused or cannot reserve space.
  static ScratchFile create(std::uint64_t size, const ScratchOptions& options = {});

  ScratchFile(ScratchFile&& other) noexcept;
  ScratchFile& operator=(ScratchFile&& other) noexcept;
  ~ScratchFile();

  // The address equals head() modulo 2 MiB. After seal() a write here is a fault (SIGSEGV), as in any read-only memory.
  std::span<std::byte> bytes() & noexcept ONECOPY_LIFETIMEBOUND;
  Bytes bytes() const& noexcept ONECOPY_LIFETIMEBOUND;
  std::span<std::byte> bytes() && = delete;  // would dangle
  Bytes bytes() const&& = delete;

  // Offsets are bytes of bytes(). Throw OsError: EINVAL for offsets out of range, EPERM when sealed, and errors of the
  // disk.
  void copy_in(std::uint64_t offset, Bytes from);
  // Copies `count` pieces of equal size, contiguous in `from`, to places `stride` bytes apart: rows of a block.
  void copy_in(std::uint64_t offset, std::uint64_t stride, std::uint64_t count, Bytes from);
  // As copy_in, but leaves nothing in memory: whole pages bypass the page cache where the file system supports it and
  // `from` has the same offset within a page as its place in the file; else they go through the cache, to the disk and
  // out again. Waits for the disk: for pieces of megabytes, two at a time. EIO is remembered.
  void write_direct(std::uint64_t offset, Bytes from);
  void fill(ByteRange range, std::byte value);
  void wrote(ByteRange range);  // written through bytes() or by another process: counts for the cap from now on

  // Reads without the page tables, and keeps only the kernel's read-ahead in memory; for sequential passes.
  void read(std::uint64_t offset, std::span<std::byte> into) const;

  // Writes these bytes, or all, to the disk, then removes them from this process and the page cache. Ranges are rounded
  // outwards to whole pages. Never throws for what the system refuses: the report says what stayed, and flush() reports
  // lost bytes. EINVAL for ranges outside the file.
  ReleaseReport release(Ranges ranges = everything);

  // Reads them into memory, as `warm` does, as far as `max_resident` permits beside the resident pages.
  WarmReport prefetch(Ranges ranges = everything) const;

  // Writes everything to the disk. Throws OsError: EIO, ENOSPC, also when writing failed before; the bytes are then
  // lost.
  void flush();

  ScratchMemory memory() const;

  // Ends writing in this process permanently: bytes() becomes read-only, and the Mapping's descriptor cannot write. May
  // be called again. A child that was forked before can still write through inherited mappings. Throws OsError: EIO if
  // bytes are lost, EINVAL for 0 bytes.
  Mapping seal();
  bool sealed() const noexcept;

  // Gives the sealed file a name, in place: `first` becomes the bytes before the data, `size` the size of the file,
  // everything is flushed, and it appears at `path` complete or not at all, as with AtomicWriter. May be called once.
  // Throws OsError: EXDEV for another file system, EOPNOTSUPP if it cannot get a name (copy it then), EBUSY if it is
  // not sealed. Not durable: it is not flushed (even starting the flush costs half a millisecond per MB), and a power
  // cut may leave any contents.
  void publish(const std::filesystem::path& path, Bytes first, std::uint64_t size, WriteOptions options = {});

  std::uint64_t head() const noexcept;
  std::optional<std::uint64_t> max_resident() const noexcept;
  int descriptor() const noexcept;  // owned by the file; can write
  const std::string& name() const& noexcept ONECOPY_LIFETIMEBOUND;
  const std::string& folder() const& noexcept ONECOPY_LIFETIMEBOUND;
  const std::string& reason() const& noexcept ONECOPY_LIFETIMEBOUND;  // a sentence: where the file is, and why there

 private:
  struct State;
  explicit ScratchFile(std::unique_ptr<State> state) noexcept;

  std::unique_ptr<State> state_;
};

}  // namespace onecopy
