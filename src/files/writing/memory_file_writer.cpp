#include "onecopy/files/memory_file_writer.hpp"

#include <algorithm>
#include <utility>

#include "files/writing/nameless.hpp"
#include "files/writing/stage.hpp"
#include "onecopy/base/environment.hpp"
#include "onecopy/base/error.hpp"
#include "onecopy/files/available_memory.hpp"
#include "os/os.hpp"

namespace onecopy {
namespace {

// Without a promise of space a later write fails, which is an error as well.
int reserve_if_possible(int fd, std::uint64_t size, std::uint64_t at_once) noexcept {
  const int error = reserve(fd, size, at_once);
  return error == EOPNOTSUPP ? 0 : error;
}

bool is_in_memory(int fd) noexcept {
  const auto system = os::file_system_of(fd);
  return system && system.value.storage == os::Storage::memory;
}

}  // namespace

struct MemoryFileWriter::State {
  State(std::string label, std::uint64_t bytes, const std::filesystem::path& folder)
      : name(std::move(label)), size(bytes), stage(bytes) {
    if (folder.empty())
      create();
    else
      create_unsealed(folder);
  }

  // What is to be in memory must not reach a disk where the system has memory for files, however little.
  void create() {
    constexpr const char* in_memory = "/dev/shm";
    auto memory = os::create_sealable(name);
    if (memory.error == EOPNOTSUPP)
      return create_unsealed(os::open_folder(in_memory) ? in_memory : environment_at_start().temporary);
    if (!memory) fail("create", memory.error);
    sealable = true;
    if (const int error = take(std::move(memory.value)); error != 0) fail("reserve memory for", error, shortage(error));
  }

  void create_unsealed(const std::filesystem::path& folder) {
    place = folder.string();
    auto file = create_nameless(place);
    const int error = file ? take(std::move(file.value)) : file.error;
    if (error != 0) fail("reserve space for", error, shortage(error));
  }

  // Returns errno. Linux overcommits: check available memory first, or the OOM killer ends the process.
  int take(os::Fd file) {
    fd = std::move(file);
    if (!is_in_memory(fd.get())) return reserve_if_possible(fd.get(), size, size);
    available = available_memory();
    if (available && !fits(size, *available)) return ENOMEM;
    return reserve_if_possible(fd.get(), size, reserved_at_once);
  }

  std::string shortage(int error) const {
    if (error != ENOMEM || !available) return {};
    return onecopy::shortage(size, *available);
  }

  void put(Bytes piece, std::uint64_t offset) const {
    if (committed) fail("write", EPERM, "it is finished");
    if (const auto result = os::write_at(fd.get(), piece, offset); !result) fail("write", result.error);
  }

  void commit() {
    stage.flush([this](Bytes piece, std::uint64_t offset) { put(piece, offset); });
    if (stage.written() != size)
      fail("commit", EINVAL, concat(size, " bytes were announced, ", stage.written(), " written"));
    if (const int error = end_writing(fd, sealable); error != 0) fail("seal", error);
    committed = true;
  }

  [[noreturn]] void fail(const char* operation, int error, std::string detail = {}) const {
    throw OsError(operation, name, error, std::move(detail));
  }

  std::string name;
  std::uint64_t size;
  Stage stage;
  std::string place;
  bool sealable = false;
  bool committed = false;
  os::Fd fd;
  std::optional<AvailableMemory> available;
};

MemoryFileWriter::MemoryFileWriter(std::string name, std::uint64_t size, const std::filesystem::path& folder)
    : state_(std::make_unique<State>(std::move(name), size, folder)) {}
MemoryFileWriter::MemoryFileWriter(MemoryFileWriter&&) noexcept = default;
MemoryFileWriter& MemoryFileWriter::operator=(MemoryFileWriter&&) noexcept = default;
MemoryFileWriter::~MemoryFileWriter() = default;

void MemoryFileWriter::write(Bytes bytes) {
  state_->stage.write(bytes, [this](Bytes piece, std::uint64_t offset) { state_->put(piece, offset); });
}

void MemoryFileWriter::overwrite(std::uint64_t offset, Bytes bytes) {
  if (!in_bounds(written(), offset, bytes.size())) state_->fail("overwrite", EINVAL, "beyond what was written");
  state_->stage.overwrite(offset, bytes, [this](Bytes piece, std::uint64_t at) { state_->put(piece, at); });
}

std::uint64_t MemoryFileWriter::written() const noexcept { return state_->stage.written(); }

void MemoryFileWriter::commit() { state_->commit(); }

Mapping MemoryFileWriter::open(const MappingOptions& options) const {
  if (!state_->committed) state_->fail("open", EBUSY, "it is still being written");
  return Mapping::from_descriptor(descriptor(), name(), options);
}

const std::string& MemoryFileWriter::name() const& noexcept { return state_->name; }
int MemoryFileWriter::descriptor() const noexcept { return state_->fd.get(); }

std::string MemoryFileWriter::reason() const {
  if (state_->sealable) return state_->committed ? "in memory, and sealed" : "in memory, to be sealed when it is whole";
  return "an unnamed file in " + state_->place + ", which nothing seals";
}

}  // namespace onecopy
