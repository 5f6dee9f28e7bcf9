#include "onecopy/files/snapshot.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <memory>
#include <new>
#include <string_view>
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
  Copier(int from, os::Fd into, std::uint64_t size, std::uint64_t lead, bool drop)
      : reader_(from, drop || is_remote(from) ? Leaves::nothing : Leaves::read),
        into_(std::move(into)),
        size_(size),
        lead_(lead),
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
      if (const auto written = os::write_at(into_.get(), part, lead_ + range.offset + done); !written)
        return written.error;
    }
    return 0;
  }

  Reader reader_;
  os::Fd into_;
  std::uint64_t size_;
  std::uint64_t lead_;
  bool drop_;
  std::atomic<int> error_{0};
  std::uint64_t failed_at_ = 0;
};

void copy(int from, int into, std::uint64_t size, const std::string& name, unsigned threads, std::uint64_t lead,
          bool drop) {
  auto own = os::duplicate(into);
  check(own.error, "duplicate a descriptor of", name);
  const auto copier = std::make_shared<Copier>(from, std::move(own.value), size, lead, drop);
  const auto watched =
      watch_pieces(copier->pieces(), threads != 0 ? threads : copier->threads(), copier, read_patience());
  throw_if_stopped(watched, "copy", name);
  if (copier->error() != 0) throw_read_error("copy", name, copier->error(), copier->failed_at());
}

std::string why_undated(const os::FileSystem& system) {
  const std::string name = system.name;
  if (system.storage == os::Storage::memory) return "in memory (" + name + "), where writes leave no time";
  return "on a file system" + (name.empty() ? name : " (" + name + ")") + " that is not known to date each write";
}

// The time of a file is set when a write begins. Without a look at the writers, one that has begun may still go on.
std::string_view why_unsettled(int fd, bool remote) {
  constexpr std::int64_t longest_write = 60'000'000'000;
  const auto facts = os::content_facts(fd, true);
  const std::int64_t now = std::chrono::system_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
  if (!facts || facts.value.ctime_ns <= 1'000'000'000) return "on a file system without times of changes";
  if (facts.value.ctime_ns < now - longest_write) return {};
  return remote ? "changed less than a minute ago, by the clock of its server"
                : "changed less than a minute ago, and only its owner can see whether a process still writes to it";
}

}  // namespace

void copy_contents(int from, int into, std::uint64_t size, const std::string& name, unsigned threads,
                   std::uint64_t lead) {
  copy(from, into, size, name, threads, lead, false);
}

Mapping take_snapshot(int fd, std::string name, unsigned threads, bool drop_source, std::uint64_t lead) {
  const auto facts = os::facts_of(fd);
  check(facts.error, "stat", name);
  (void)os::will_need(fd, {0, std::uint64_t{128} << 20U});  // while memory is reserved
  os::Fd memory = create(name, lead + facts.value.size);
  copy(fd, memory.get(), facts.value.size, name, threads, lead, drop_source);
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

bool is_stacked(int fd) {
  const auto system = os::file_system_of(fd);
  return !system || *system.value.name == '\0' || system.value.stacked;
}

std::string why_not_identified(int fd) {
  const auto system = os::file_system_of(fd);
  if (!system) return "on a file system that is not known";
  const bool remote = system.value.storage == os::Storage::remote;
  if (!remote && !system.value.dates_writes) return why_undated(system.value);
  const auto writer = remote ? os::Result<bool>{false, EOPNOTSUPP} : os::is_open_for_writing(fd);
  if (writer.value) return "a process has it open for writing";
  if (writer && !system.value.stacked) return {};
  if (const int error = os::write_back(fd); error != 0)
    return error == EOPNOTSUPP ? "on overlayfs over a file system that does not date each write"
                               : "its dirty pages cannot be written back (errno " + std::to_string(error) + ")";
  return std::string(writer ? std::string_view() : why_unsettled(fd, remote));
}

}  // namespace onecopy
