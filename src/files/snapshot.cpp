#include "onecopy/files/snapshot.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <memory>
#include <new>
#include <utility>

#include "files/reading.hpp"
#include "files/writing/reservation.hpp"
#include "onecopy/base/error.hpp"
#include "onecopy/base/pieces.hpp"
#include "os/os.hpp"

namespace onecopy {
namespace {

void check(int error, const char* operation, const std::string& name) {
  if (error != 0) throw OsError(operation, name, error);
}

// A memory file with `size` bytes of reserved space, which no other process has yet.
os::Fd create(const std::string& name, std::uint64_t size) {
  auto memory = os::create_sealable(name);
  check(memory.error == EOPNOTSUPP ? ENOTSUP : memory.error, "create", name);
  check(os::set_size(memory.value.get(), size), "resize", name);
  check(reserve(memory.value.get(), size, reserved_at_once), "reserve memory for", name);
  return std::move(memory.value);
}

// Copies pieces of a file into a memory file, with write(2): in a mapping, each page would cost a fault, and a child's
// mapping would prevent sealing.
class Copier {
 public:
  // In the page cache a process that maps a file of a disk may need it; of a server's file the memory file is for all.
  // `drop`: out of the page cache, also what was there before.
  Copier(int from, os::Fd into, std::uint64_t size, bool drop)
      : reader_(from, drop || is_remote(from) ? Leaves::nothing : Leaves::read),
        into_(std::move(into)),
        size_(size),
        drop_(drop) {}

  std::uint64_t pieces() const noexcept { return (size_ + reader_.piece() - 1) / reader_.piece(); }
  unsigned threads() const noexcept { return reader_.threads(); }

  bool operator()(std::uint64_t number) noexcept {
    const ByteRange range{number * reader_.piece(), std::min(reader_.piece(), size_ - number * reader_.piece())};
    const bool is_new = reader_.bring_in(range);
    const int failed = copy_in_steps(range);
    if (is_new || drop_) reader_.let_go(range);
    int none = 0;
    if (failed != 0 && error_.compare_exchange_strong(none, failed)) failed_at_ = range.offset;
    return failed == 0;
  }

  int error() const noexcept { return error_; }
  std::uint64_t failed_at() const noexcept { return failed_at_; }  // read after the threads' end

 private:
  // Each step stays in the cache of the CPU until it is written. Not on the stack: musl's threads have 128 KiB of it.
  int copy_in_steps(ByteRange range) const noexcept {
    constexpr std::size_t step = std::size_t{128} << 10U;
    const std::unique_ptr<std::byte[]> buffer(new (std::nothrow) std::byte[step]);  // NOLINT(*-avoid-c-arrays)
    if (buffer == nullptr) return ENOMEM;
    for (std::uint64_t done = 0; done < range.length; done += step) {
      const auto part = os::MutableBytes(buffer.get(), std::min<std::uint64_t>(step, range.length - done));
      if (const int error = reader_.read_cached(part, range.offset + done); error != 0) return error;
      if (const auto written = os::write_at(into_.get(), part, range.offset + done); !written) return written.error;
    }
    return 0;
  }

  Reader reader_;
  os::Fd into_;
  std::uint64_t size_;
  bool drop_;
  std::atomic<int> error_{0};
  std::uint64_t failed_at_ = 0;
};

// Afterwards each write to a file of a disk changes the time of its last change.
void expect_dated_writes(int fd, std::uint64_t size, const std::string& name) {
  check(os::wait_for_writes(fd), "seek", name);
  check(os::write_out(fd, {0, 0}), "write back", name);
  // Dirty again at once: a writer is at work, or the file system keeps its files in memory.
  const auto cached = os::cached_in_file(fd, {0, size});
  if (cached && cached.value.dirty != 0) throw OsError("write back", name, EBUSY, "it is being written");
  (void)os::will_need(fd, {0, std::uint64_t{128} << 20U});  // while memory is reserved
}

void copy(int from, int into, std::uint64_t size, const std::string& name, unsigned threads, bool drop) {
  auto own = os::duplicate(into);
  check(own.error, "duplicate a descriptor of", name);
  const auto copier = std::make_shared<Copier>(from, std::move(own.value), size, drop);
  const auto watched =
      watch_pieces(copier->pieces(), threads != 0 ? threads : copier->threads(), copier, read_patience());
  throw_if_stopped(watched, "copy", name);
  if (copier->error() != 0) throw_read_error("copy", name, copier->error(), copier->failed_at());
}

}  // namespace

void copy_contents(int from, int into, std::uint64_t size, const std::string& name, unsigned threads) {
  copy(from, into, size, name, threads, false);
}

Mapping take_snapshot(int fd, std::string name, unsigned threads, bool drop_source) {
  const auto facts = os::facts_of(fd);
  check(facts.error, "stat", name);
  if (!is_remote(fd)) expect_dated_writes(fd, facts.value.size, name);
  os::Fd memory = create(name, facts.value.size);
  copy(fd, memory.get(), facts.value.size, name, threads, drop_source);
  check(os::seal(memory.get()), "seal", name);
  // Kernels before 6.7 refuse to map what is sealed through a descriptor that could write.
  if (auto reader = os::reopen_read(memory.get())) memory = std::move(reader.value);
  return Mapping::from_descriptor(memory.get(), std::move(name));
}

ContentIdentity content_identity(int fd, bool ask) {
  const auto facts = os::content_facts(fd, ask);
  check(facts.error, "stat", "descriptor " + std::to_string(fd));
  return {facts.value.device, facts.value.inode, facts.value.size, facts.value.mtime_ns, facts.value.ctime_ns};
}

bool is_remote(int fd) {
  const auto system = os::file_system_of(fd);
  return system && system.value.storage == os::Storage::remote;
}

std::string why_writes_are_undated(int fd) {
  const auto system = os::file_system_of(fd);
  if (!system) return "on a file system that is not known";
  if (system.value.dates_writes) return {};
  const std::string name = system.value.name;
  if (system.value.storage == os::Storage::memory) return "in memory (" + name + "), where writes leave no time";
  if (system.value.storage == os::Storage::remote) return "on a network or user-space file system (" + name + ")";
  return "on a file system that is not known to date each write";
}

}  // namespace onecopy
