#include "onecopy/files/snapshot.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <utility>

#include "files/read_error.hpp"
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

constexpr std::uint64_t piece = std::uint64_t{8} << 20U;
constexpr std::size_t step = std::size_t{128} << 10U;  // stays in the cache of the CPU until it is written
constexpr std::uint64_t ahead = 4 * piece;             // of a piece that is copied, so that the device never waits
constexpr unsigned copying_threads = 4;                // one of them writes at a time, while others read

// Copies with write(2): in a mapping, each page would cost a fault, and a child's mapping would prevent sealing.
void copy(int from, int into, std::uint64_t size, const std::string& name, unsigned threads, bool drop_source) {
  std::atomic<int> error{0};
  std::uint64_t failed_at = 0;
  const auto copy_step = [&](std::uint64_t at, os::MutableBytes buffer) noexcept {
    const auto read = os::read_at(from, buffer, at);
    if (!read) return read.error;
    if (read.value != buffer.size()) return ENODATA;
    return os::write_at(into, buffer, at).error;
  };
  (void)for_each_piece((size + piece - 1) / piece, threads != 0 ? threads : copying_threads, [&](std::uint64_t number) {
    std::array<std::byte, step> buffer;  // NOLINT(*-member-init): read into before it is written
    const ByteRange range{number * piece, std::min(piece, size - number * piece)};
    (void)os::will_need(from, {range.offset + ahead, piece});
    for (std::uint64_t at = range.offset; at < range.offset + range.length; at += step) {
      const auto part = os::MutableBytes(buffer).first(std::min<std::uint64_t>(step, range.offset + range.length - at));
      int none = 0;
      const int failed = copy_step(at, part);
      if (failed == 0) continue;
      if (error.compare_exchange_strong(none, failed)) failed_at = at;
      return false;
    }
    if (drop_source) (void)os::drop_cached(from, range);
    return true;
  });
  if (error != 0) throw_read_error("copy", name, error, failed_at);
}

}  // namespace

Mapping take_snapshot(int fd, std::string name, unsigned threads, bool drop_source) {
  const auto facts = os::facts_of(fd);
  check(facts.error, "stat", name);
  check(os::wait_for_writes(fd), "seek", name);
  check(os::write_out(fd, {0, 0}), "write back", name);
  // Dirty again at once: a writer is at work, or the file system keeps its files in memory.
  const auto cached = os::cached_in_file(fd, {0, facts.value.size});
  if (cached && cached.value.dirty != 0) throw OsError("write back", name, EBUSY, "it is being written");
  (void)os::will_need(fd, {0, 4 * ahead});  // while memory is reserved
  os::Fd memory = create(name, facts.value.size);
  copy(fd, memory.get(), facts.value.size, name, threads, drop_source);
  check(os::seal(memory.get()), "seal", name);
  // Kernels before 6.7 refuse to map what is sealed through a descriptor that could write.
  if (auto reader = os::reopen_read(memory.get())) memory = std::move(reader.value);
  return Mapping::from_descriptor(memory.get(), std::move(name));
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
