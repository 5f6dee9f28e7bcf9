#include "onecopy/files/snapshot.hpp"

#include <utility>

#include "files/addresses.hpp"
#include "files/writing/copy_in.hpp"
#include "files/writing/reservation.hpp"
#include "onecopy/base/error.hpp"
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

void copy(int from, int into, std::uint64_t size, const CopyOptions& options) {
  auto addresses = Addresses::reserve(size, 0);
  check(addresses.error, "reserve addresses for", options.path);
  const os::MutableBytes memory{addresses.value.at(), static_cast<std::size_t>(size)};
  check(os::map_shared_at(memory.data(), memory.size(), into, 0), "map", options.path);
  check(os::not_in_children(memory), "map", options.path);  // a child's mapping would prevent sealing
  copy_in(from, memory, 0, options);
}

}  // namespace

Mapping take_snapshot(int fd, std::string name, unsigned threads) {
  const auto facts = os::facts_of(fd);
  check(facts.error, "stat", name);
  check(os::wait_for_writes(fd), "seek", name);
  check(os::write_out(fd, {0, 0}), "write back", name);
  // Dirty again at once: a writer is at work, or the file system keeps its files in memory.
  const auto cached = os::cached_in_file(fd, {0, facts.value.size});
  if (cached && cached.value.dirty != 0) throw OsError("write back", name, EBUSY, "it is being written");
  os::Fd memory = create(name, facts.value.size);
  copy(fd, memory.get(), facts.value.size, {name, threads, false});  // the next run finds the file in the cache
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
