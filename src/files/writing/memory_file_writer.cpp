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

// Without reserved space, a later write fails, which is reported as well.
int reserve_if_possible(int fd, std::uint64_t size, std::uint64_t at_once) noexcept {
  const int error = reserve(fd, size, at_once);
  return error == EOPNOTSUPP ? 0 : error;
}

}  // namespace

class MemoryFileWriter::State final : public FileWriter::State {
 public:
  State(std::string label, std::uint64_t bytes, const std::filesystem::path& folder)
      : FileWriter::State(bytes), name(std::move(label)) {
    if (folder.empty())
      create();
    else
      create_unsealed(folder);
  }

  // Data for memory must not reach a disk if the system has any memory for files.
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

  void put(Bytes piece, std::uint64_t offset) override {
    if (committed) fail("write", EPERM, "the file is already finished");
    if (const auto result = os::write_at(fd.get(), piece, offset); !result) fail("write", result.error);
  }

  void finish() override {
    if (const int error = end_writing(fd, sealable); error != 0) fail("seal", error);
    committed = true;
  }

  [[noreturn]] void fail(const char* operation, int error, std::string detail = {}) const override {
    throw OsError(operation, name, error, std::move(detail));
  }

  std::string name;
  std::string place;
  bool sealable = false;
  bool committed = false;
  os::Fd fd;
  std::optional<AvailableMemory> available;
};

MemoryFileWriter::MemoryFileWriter(std::string name, std::uint64_t size, const std::filesystem::path& folder)
    : FileWriter(std::make_unique<State>(std::move(name), size, folder)) {}

const MemoryFileWriter::State& MemoryFileWriter::state() const noexcept { return static_cast<const State&>(*state_); }

Mapping MemoryFileWriter::open(const MappingOptions& options) const {
  if (!state().committed) state().fail("open", EBUSY, "it is still being written");
  return Mapping::from_descriptor(descriptor(), name(), options);
}

const std::string& MemoryFileWriter::name() const& noexcept { return state().name; }
int MemoryFileWriter::descriptor() const noexcept { return state().fd.get(); }

std::string MemoryFileWriter::reason() const {
  if (state().sealable)
    return state().committed ? "in memory, and sealed" : "in memory, to be sealed when it is complete";
  return "an unnamed file in " + state().place + ", which cannot be sealed";
}

}  // namespace onecopy
