#include "onecopy/files/atomic_writer.hpp"

#include <string>
#include <utility>

#include "files/writing/reservation.hpp"
#include "files/writing/stage.hpp"
#include "files/writing/target.hpp"
#include "os/os.hpp"

namespace onecopy {

namespace fs = std::filesystem;

struct AtomicWriter::State {
  State(const fs::path& asked, std::uint64_t bytes, WriteOptions how)
      : target(asked), size(bytes), options(how), stage(bytes) {
    target.sweep();
    create();
    const int error = reserve(fd.get(), size, size);
    if (error != 0 && error != EOPNOTSUPP) abandon_and_fail("reserve space for", error);
  }

  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() { abandon(); }

  // A lock is held until the file is in place or this process is dead, so that nobody sweeps a living writer's file.
  void create() {
    auto unnamed = os::create_unnamed(target.folder());
    if (unnamed.error == EOPNOTSUPP) return create_hidden();
    if (!unnamed) fail("save", unnamed.error);
    fd = std::move(unnamed.value);
    (void)os::lock(fd.get());
  }

  void create_hidden() {
    for (;;) {
      auto name = target.new_hidden_name();
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
    const int error = options.durable ? os::sync_file(fd.get()) : 0;
    if (error != 0) abandon_and_fail("flush", error);
    if (const int refused = target.take_place(fd.get(), hidden); refused != 0) abandon_and_fail("save", refused);
    fd = os::Fd();
    if (options.durable) target.flush_folder();
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
    target.fail(operation, error, std::move(detail));
  }

  Target target;
  std::uint64_t size;
  WriteOptions options;
  std::string hidden;  // the name on the disk, if there is one
  os::Fd fd;
  Stage stage;
};

AtomicWriter::AtomicWriter(const fs::path& target, std::uint64_t size, WriteOptions options)
    : state_(std::make_unique<State>(target, size, options)) {}
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
