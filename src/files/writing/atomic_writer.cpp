#include "onecopy/files/atomic_writer.hpp"

#include <string>
#include <system_error>
#include <utility>

#include "files/writing/nameless.hpp"
#include "files/writing/stage.hpp"
#include "files/writing/target.hpp"
#include "onecopy/base/error.hpp"
#include "onecopy/base/interrupt.hpp"
#include "onecopy/files/available_memory.hpp"
#include "os/os.hpp"

namespace onecopy {

namespace fs = std::filesystem;

class AtomicWriter::State final : public FileWriter::State {
 public:
  State(Target place, std::uint64_t bytes, WriteOptions how)
      : FileWriter::State(bytes), target(std::move(place)), options(how) {
    target.sweep();
    file = target.create();
    if (options.permissions != 0) (void)os::set_permissions(file.fd.get(), options.permissions);
    if (is_in_memory(file.fd.get())) expect_space_in_memory();
    const int error = reserve(file.fd.get(), size, size);
    if (error != 0 && error != EOPNOTSUPP) {
      const auto free = os::free_space(file.fd.get());
      std::string detail;
      if (error == ENOSPC && free && free.value < size)
        detail = std::generic_category().message(error) + ": " + std::to_string(size) + " bytes are needed, " +
                 std::to_string(free.value) + " are free";
      abandon();
      fail("reserve space for", error, std::move(detail));
    }
    const auto memory = size > piece_size ? available_memory() : std::nullopt;
    too_large = memory && is_large(size, memory->bytes);
  }

  ~State() override { abandon(); }

 private:
  void expect_space_in_memory() {
    const auto memory = available_memory();
    if (!memory || fits(size, *memory)) return;
    abandon();
    fail("save", ENOMEM, shortage(size, *memory) + ": choose a folder on a disk");
  }

  void put(Bytes piece, std::uint64_t offset) override {
    const auto result = os::write_at(file.fd.get(), piece, offset);
    if (!result) abandon_and_fail("write", result.error);
  }

  void append(Bytes piece, std::uint64_t offset) override {
    put(piece, offset);
    const std::uint64_t end = offset + piece.size();
    if ((options.durable || too_large) && end - under_way >= piece_size) {
      // The device works while we produce the next piece; otherwise it would idle until the final flush.
      (void)os::start_writeback(file.fd.get(), {under_way, end - under_way});
      if (too_large) release(under_way);
      under_way = end;
    }
    poll_interrupt();
  }

  // Dirty pages cannot be reclaimed, and clean ones would displace other files before the kernel reclaims them.
  void release(std::uint64_t end) {
    if (const int error = os::write_out(file.fd.get(), {released, end - released}); error != 0)
      abandon_and_fail("write", error);
    (void)os::drop_cached(file.fd.get(), {released, end - released});
    released = end;
  }

  void finish() override {
    const int error = options.durable ? os::sync_file(file.fd.get()) : 0;
    if (error != 0) abandon_and_fail("flush", error);
    if (too_large) release(size);
    const int refused =
        file.hidden.empty() ? target.put_nameless(file.fd.get()) : target.put_hidden(file, permissions());
    if (refused != 0) abandon_and_fail("save", refused);
    file = {};
    if (options.durable) target.flush_folder();
  }

  unsigned permissions() const {
    return options.permissions != 0 ? options.permissions : os::permissions_of_new_files();
  }

  // Permanently: after a failed write or flush, the kernel would let the next one succeed without the lost bytes.
  void abandon() noexcept {
    if (process == os::process_id()) target.remove(file);  // not in a forked child, which does not own it
    file = {};
  }

  [[noreturn]] void abandon_and_fail(const char* operation, int error) {
    abandon();
    fail(operation, error);
  }

  [[noreturn]] void fail(const char* operation, int error, std::string detail = {}) const override {
    target.fail(operation, error, std::move(detail));
  }

  std::uint64_t under_way = 0;  // up to here the device has been asked to write
  std::uint64_t released = 0;   // up to here nothing is in the page cache
  bool too_large = false;       // for half of the available memory

  Target target;
  WriteOptions options;
  Target::NewFile file;
  std::uint64_t process = os::process_id();
};

AtomicWriter::AtomicWriter(const fs::path& target, std::uint64_t size, WriteOptions options)
    : AtomicWriter(Target(target), size, options) {}
AtomicWriter::AtomicWriter(Target target, std::uint64_t size, WriteOptions options)
    : FileWriter(std::make_unique<State>(std::move(target), size, options)) {}

}  // namespace onecopy
