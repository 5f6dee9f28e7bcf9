#include "onecopy/files/snapshot.hpp"

#include <cerrno>
#include <chrono>
#include <memory>
#include <string_view>
#include <utility>

#include "files/reading.hpp"
#include "files/writing/nameless.hpp"
#include "onecopy/base/error.hpp"
#include "onecopy/base/pieces.hpp"
#include "os/os.hpp"

namespace onecopy {
namespace {

void check(int error, const char* operation, const std::string& name) {
  if (error != 0) throw OsError(operation, name, error);
}

// With write(2): in a mapping, each page would cost a fault, and a child's mapping would prevent sealing. Other
// processes may map a file of a disk, and then need its pages in the page cache; of a server's file the copy serves
// them all. `drop`: out of the page cache, also what was there before.
void copy(int from, int into, std::uint64_t size, const std::string& name, unsigned threads, std::uint64_t lead,
          bool drop) {
  auto own = os::duplicate(into);
  check(own.error, "duplicate a descriptor of", name);
  const auto target = std::make_shared<const os::Fd>(std::move(own.value));
  const auto read = [target, lead, drop](const Reader& reader, ByteRange piece, std::size_t& /*done*/) {
    const bool is_new = reader.bring_in(piece);
    const int error = read_in_parts(reader.descriptor(), piece, [&](Bytes part, std::uint64_t offset) {
      return os::write_at(target->get(), part, lead + offset).error;
    });
    if (is_new || drop) reader.let_go(piece);
    return error;
  };
  const Leaves leaves = drop || is_remote(from) ? Leaves::nothing : Leaves::read;
  bool left = false;
  read_in_pieces({from, leaves, {0, size}, threads, "copy", name, read}, left);
}

std::string why_undated(const os::FileSystem& system) {
  const std::string name = system.name;
  if (system.storage == os::Storage::memory)
    return "in memory (" + name + "), where the times of writes are not recorded";
  return "on a file system" + (name.empty() ? name : " (" + name + ")") + " that may not record the time of each write";
}

// The time of a file is set when a write begins. Without a look at the writers, one that has begun may still go on.
std::string_view why_unsettled(int fd, bool remote) {
  constexpr std::int64_t longest_write = 60'000'000'000;
  const auto facts = os::content_facts(fd, true);
  const std::int64_t now = std::chrono::system_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
  if (!facts || facts.value.ctime_ns <= 1'000'000'000) return "on a file system that does not record times of changes";
  if (facts.value.ctime_ns < now - longest_write) return {};
  return remote ? "changed less than a minute ago, according to the clock of its server"
                : "changed less than a minute ago, and only its owner can see whether a process is still writing to it";
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
  auto memory = os::create_sealable(name);
  check(memory.error == EOPNOTSUPP ? ENOTSUP : memory.error, "create", name);
  const int fd_of_memory = memory.value.get();
  const std::uint64_t size = lead + facts.value.size;
  check(os::set_size(fd_of_memory, size), "resize", name);
  check(reserve(fd_of_memory, size, reserved_at_once), "reserve memory for", name);
  copy(fd, fd_of_memory, facts.value.size, name, threads, lead, drop_source);
  check(end_writing(memory.value, true), "seal", name);
  return Mapping::from_descriptor(memory.value.get(), std::move(name));
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
  if (!system) return "on an unknown file system";
  const bool remote = system.value.storage == os::Storage::remote;
  if (!remote && !system.value.dates_writes) return why_undated(system.value);
  const auto writer = remote ? os::Result<bool>{false, EOPNOTSUPP} : os::is_open_for_writing(fd);
  if (writer.value) return "a process has it open for writing";
  if (writer && !system.value.stacked) return {};
  if (const int error = os::write_back(fd); error != 0)
    return error == EOPNOTSUPP ? "on overlayfs over a file system that does not record the time of each write"
                               : "its dirty pages cannot be written back (errno " + std::to_string(error) + ")";
  return std::string(writer ? std::string_view() : why_unsettled(fd, remote));
}

}  // namespace onecopy
