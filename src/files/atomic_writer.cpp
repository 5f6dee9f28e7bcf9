#include "onecopy/files/atomic_writer.hpp"

#include <array>
#include <cstdio>
#include <random>
#include <string>
#include <utility>

#include "files/stage.hpp"
#include "onecopy/base/crc32c.hpp"
#include "onecopy/base/error.hpp"
#include "os/os.hpp"

namespace onecopy {
namespace {

namespace fs = std::filesystem;

std::string hexadecimal(std::uint32_t number) {
  std::array<char, 9> text{};
  std::snprintf(text.data(), text.size(), "%08x", number);
  return text.data();
}

// Where a link in the target's place leads in the end, also when nothing is there yet.
fs::path real_target(const fs::path& target) {
  fs::path at = target;
  for (int depth = 0; depth < 40; ++depth) {  // the kernel's own limit
    std::error_code error;
    const auto next = fs::read_symlink(at, error);
    if (error) return at;
    at = next.is_absolute() ? next : at.parent_path() / next;
  }
  throw OsError("save", target.string(), ELOOP);
}

// Hidden names of one target share a prefix of fixed length, so that the longest target name still has room.
std::string hidden_prefix(const fs::path& target) {
  const auto name = target.filename().string();
  return ".onecopy-" + hexadecimal(crc32c(0, std::as_bytes(std::span(name)))) + "-";
}

// Removes hidden files that dead writers of this target left. A live one holds a lock on its file.
void sweep(const fs::path& folder, const std::string& prefix) {
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    if (!at->path().filename().string().starts_with(prefix)) continue;
    const auto file = os::open_read(at->path().string());
    if (file && os::try_lock(file.value.get())) (void)os::remove_file(at->path().string());
  }
}

}  // namespace

struct AtomicWriter::State {
  State(const fs::path& asked, std::uint64_t bytes)
      : target(real_target(asked)),
        folder(target.has_parent_path() ? target.parent_path() : fs::path(".")),
        prefix(hidden_prefix(target)),
        size(bytes),
        stage(bytes) {
    check_target();
    sweep(folder, prefix);
    create();
    const int error = size == 0 ? 0 : os::reserve_space(fd.get(), {0, size});
    if (error != 0 && error != EOPNOTSUPP) abandon_and_fail("reserve space for", error);
  }

  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() { abandon(); }

  // Now, and not after all is written.
  void check_target() const {
    const auto there = os::facts_of(target.string());
    if (there && there.value.kind == os::FileKind::folder) fail("save", EISDIR);
    if (there && there.value.kind == os::FileKind::other)
      fail("save", EEXIST, "a FIFO, socket or device stands there, and is not to be replaced");
    if (!there && there.error != ENOENT) fail("save", there.error);
  }

  // A lock is held until the file is in place or this process is dead, so that nobody sweeps a living writer's file.
  void create() {
    auto unnamed = os::create_unnamed(folder.string());
    if (unnamed.error == EOPNOTSUPP) return create_hidden();
    if (!unnamed) fail("save", unnamed.error);
    fd = std::move(unnamed.value);
    (void)os::lock(fd.get());
  }

  void create_hidden() {
    for (;;) {
      auto name = new_hidden_name();
      auto named = os::create_named(name);
      if (named.error == EEXIST) continue;
      if (!named) fail("save", named.error);
      hidden = std::move(name);
      fd = std::move(named.value);
      // Another writer may have swept the file in the instant between its birth and the lock.
      if (!os::lock(fd.get()) || is_still_there()) return;
    }
  }

  bool is_still_there() const {
    const auto ours = os::facts_of(fd.get());
    const auto named = os::facts_of(hidden);
    return ours && named && ours.value.device == named.value.device && ours.value.inode == named.value.inode;
  }

  std::string new_hidden_name() const {
    std::random_device random;
    return (folder / (prefix + hexadecimal(random()))).string();
  }

  void put(Bytes piece, std::uint64_t offset) {
    const auto result = os::write_at(fd.get(), piece, offset);
    if (!result) abandon_and_fail("write", result.error);
  }

  void append(Bytes piece, std::uint64_t offset) {
    put(piece, offset);
    // The device works while we produce the next piece; otherwise it would idle until the final flush.
    (void)os::start_writeback(fd.get(), {offset, piece.size()});
  }

  void commit() {
    stage.flush([this](Bytes piece, std::uint64_t offset) { append(piece, offset); });
    if (stage.written() != size)
      fail("save", EINVAL,
           std::to_string(size) + " bytes were announced, " + std::to_string(stage.written()) + " written");
    if (const int error = os::sync_file(fd.get()); error != 0) abandon_and_fail("flush", error);
    if (hidden.empty()) {
      // linkat cannot replace a file, rename can: hence the detour over a hidden name.
      auto name = new_hidden_name();
      if (const int error = os::link_unnamed(fd.get(), name); error != 0) abandon_and_fail("save", error);
      hidden = std::move(name);
    }
    if (const int error = os::rename_file(hidden, target.string()); error != 0) abandon_and_fail("save", error);
    hidden.clear();
    fd = os::Fd();
    // The new file is in place; without this it might be the old one again after a power cut. A folder that may be
    // written but not read (EACCES) cannot be flushed, and some file systems do not flush folders (EINVAL).
    const int error = os::sync_folder(folder.string());
    if (error != 0 && error != EACCES && error != EINVAL) fail("flush folder of", error);
  }

  // For good: after a failed write or flush the kernel would let the next one succeed, without what was lost.
  void abandon() noexcept {
    if (!hidden.empty()) (void)os::remove_file(hidden);
    hidden.clear();
    fd = os::Fd();
  }

  [[noreturn]] void abandon_and_fail(const char* operation, int error) {
    abandon();
    fail(operation, error);
  }

  [[noreturn]] void fail(const char* operation, int error, std::string detail = {}) const {
    throw OsError(operation, target.string(), error, std::move(detail));
  }

  fs::path target;
  fs::path folder;
  std::string prefix;
  std::uint64_t size;
  std::string hidden;  // the name on the disk, if there is one
  os::Fd fd;
  Stage stage;
};

AtomicWriter::AtomicWriter(const fs::path& target, std::uint64_t size)
    : state_(std::make_unique<State>(target, size)) {}
AtomicWriter::AtomicWriter(AtomicWriter&&) noexcept = default;
AtomicWriter& AtomicWriter::operator=(AtomicWriter&&) noexcept = default;
AtomicWriter::~AtomicWriter() = default;

void AtomicWriter::write(Bytes bytes) {
  state_->stage.write(bytes, [this](Bytes piece, std::uint64_t offset) { state_->append(piece, offset); });
}

void AtomicWriter::overwrite(std::uint64_t offset, Bytes bytes) {
  if (!in_bounds(written(), offset, bytes.size())) state_->fail("overwrite", EINVAL, "beyond what was written");
  state_->stage.overwrite(offset, bytes, [this](Bytes piece, std::uint64_t at) { state_->put(piece, at); });
}

std::uint64_t AtomicWriter::written() const noexcept { return state_->stage.written(); }

void AtomicWriter::commit() { state_->commit(); }

}  // namespace onecopy
