// files: a path becomes read-only memory. `Mapping` is the one type of the project that owns mapped files.
//
// `Mapping` owns part or all of a file: mapped (the page cache's own pages, one copy for all processes), copied (a
// private block, in huge pages if available), or mapped with copy-on-write pages for consumers that write in place.
//
//     const auto weights = Mapping::open("model.safetensors");
//     Bytes all = weights.bytes();          // valid as long as `weights`
//
// Ownership: the Mapping owns addresses and descriptor and releases both when it is destroyed. Views do not own; a view
// of a temporary does not compile. Threads: all const members may be called by any number of threads at once.
//
// Danger: when another process truncates a mapped file, touching the lost pages raises SIGBUS and ends the process.
// Files written by onecopy are replaced, never edited; `warm` and `residency` report a truncated file as `DataLost`;
// `guard()` turns the signal into zeros and a recorded loss. Choose Mode::copy for files that other programs edit in
// place.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "onecopy/base/bytes.hpp"
#include "onecopy/files/guard.hpp"
#include "onecopy/files/identity.hpp"

namespace onecopy {

enum class Mode : std::uint8_t {
  map,   // the page cache's pages, read when touched
  copy,  // a private block, read now
};

struct MappingOptions {
  std::uint64_t offset = 0;             // bytes; need not be a multiple of the page size
  std::optional<std::uint64_t> length;  // bytes; none: to the end of the file
  Mode mode = Mode::map;
  bool private_pages = false;  // writable copy-on-write pages: the file never changes, a written page is private
  unsigned threads = 0;        // of Mode::copy; 0: 8
};

// Something that uses a mapping's pages by address; it must be destroyed before they are unmapped.
class PagesUser {
 public:
  PagesUser() = default;
  PagesUser(const PagesUser&) = delete;
  PagesUser& operator=(const PagesUser&) = delete;
  virtual ~PagesUser() = default;

 private:
  friend class Mapping;
  PagesUser* before = nullptr;
};

class Mapping {
 public:
  // At least this many bytes can be read after bytes().end(), so that code that reads a little past the end is safe.
  static constexpr std::size_t readable_tail = 64;

  // One descriptor from open to map: the path is not resolved twice. Throws OsError (missing, permission, folder, FIFO,
  // empty, shorter than the requested range, out of memory) with path, operation and errno; follows symbolic links.
  static Mapping open(const std::filesystem::path& path, const MappingOptions& options = {});

  // As `open`, from an open descriptor (a memfd, an unlinked file). The descriptor is duplicated; the caller keeps its
  // own.
  static Mapping from_descriptor(int fd, std::string name, const MappingOptions& options = {});

  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  ~Mapping();

  // The address equals file_offset() modulo 2 MiB, so that the kernel can use 2 MiB pages.
  Bytes bytes() const& noexcept ONECOPY_LIFETIMEBOUND;
  Bytes bytes() const&& = delete;  // would dangle

  // The mapped memory, writable. Empty unless opened with private_pages.
  std::span<std::byte> private_bytes() & noexcept ONECOPY_LIFETIMEBOUND;
  std::span<std::byte> private_bytes() && = delete;

  // Copies bytes of the mapping without touching mapped pages: a truncated file results in DataLost, not in a signal.
  // [offset, offset + into.size()) must lie in bounds.
  void read(std::uint64_t offset, std::span<std::byte> into) const;

  const std::string& path() const& noexcept ONECOPY_LIFETIMEBOUND;
  const FileIdentity& identity() const& noexcept ONECOPY_LIFETIMEBOUND;
  std::uint64_t file_offset() const noexcept;
  Mode mode() const noexcept;
  bool private_pages() const noexcept;
  int descriptor() const noexcept;  // owned by the mapping; for system calls that take one
  bool sealed() const noexcept;     // true: a sealed memory file, which no process can write, grow or shorten

  // Keeps `user` until the pages are about to be unmapped, and destroys it then; the last one first.
  void keep(std::unique_ptr<PagesUser> user) const noexcept;

  // The bytes that were lost under views since guard() was called. Empty: no touched page was lost.
  std::optional<Loss> loss() const noexcept;

  // True if the path now leads to a different file or to no file, or if this file was written or truncated since.
  bool changed() const;

 private:
  struct State;
  explicit Mapping(std::unique_ptr<State> state) noexcept;

  std::unique_ptr<State> state_;
};

// Throws DataLost if the mapping has lost bytes; every call that returns or reads its bytes checks this first.
void expect_whole(const Mapping& mapping);

// Throws FileChanged unless `mapping` maps the file described by `expected`.
void expect_identity(const Mapping& mapping, const FileIdentity& expected);

}  // namespace onecopy
