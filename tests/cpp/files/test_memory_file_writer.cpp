#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>

#include "memory_files.hpp"
#include "onecopy/base/error.hpp"
#include "onecopy/files/available_memory.hpp"
#include "onecopy/files/mapping.hpp"
#include "onecopy/files/memory_file_writer.hpp"
#include "os/os.hpp"
#include "scratch_folder.hpp"
#include "writers.hpp"

namespace onecopy {
namespace {

using testing::memory_file;

int error_of_size(std::uint64_t size) {
  try {
    const MemoryFileWriter writer("too large", size);
  } catch (const OsError& error) {
    CHECK(error.path() == "too large");
    return error.code();
  }
  return 0;
}

}  // namespace

TEST_CASE_FIXTURE(InFolder, "in a folder it is a file without a name there, that goes with its last descriptor") {
  const std::string content(100'000, 'x');
  MemoryFileWriter writer("content", content.size(), folder.path());
  writer.write(std::as_bytes(std::span(content)));
  writer.commit();
  const Mapping mapping = writer.open();
  CHECK(mapping.bytes().size() == content.size());
  CHECK(testing::same_bytes(mapping.bytes(), std::as_bytes(std::span(content))));
  CHECK_FALSE(mapping.sealed());
  CHECK(std::filesystem::is_empty(folder.path()));
  CHECK(writer.reason() == "an unnamed file in " + folder.path().string() + ", which cannot be sealed");
  CHECK_THROWS_AS(MemoryFileWriter("content", 10, folder.path() / "none"), OsError);
}

TEST_CASE("what is written into memory in pieces of any size comes back whole") {
  auto content = testing::random_bytes((std::size_t{40} << 20U) + 17);
  MemoryFileWriter writer("content", content.size());
  testing::write_in_pieces(writer, content);
  testing::patch(writer, content, {0, (std::size_t{32} << 20U) - 100, content.size() - 200});
  CHECK_THROWS_AS((void)writer.open(), OsError);  // before it is whole
  writer.commit();
  const auto mapping = writer.open();
  CHECK(testing::same_bytes(mapping.bytes(), content));
  MappingOptions copied;
  copied.mode = Mode::copy;
  copied.offset = 12345;
  const auto copy = writer.open(copied);
  CHECK(testing::same_bytes(copy.bytes(), Bytes(content).subspan(12345)));
  CHECK(!mapping.changed());
}

TEST_CASE("a finished memory file is sealed where the kernel has seals, and the report says which") {
  const auto content = testing::random_bytes(10'000);
  MemoryFileWriter writer("content", content.size());
  const auto before = writer.reason();
  writer.write(content);
  writer.commit();
  CHECK(writer.open().sealed() == testing::has_memory_files());
  CHECK((writer.reason().find("cannot be sealed") == std::string::npos) == testing::has_memory_files());
  CHECK((writer.reason() != before) == testing::has_memory_files());
  const testing::ScratchFolder folder;
  CHECK(!Mapping::open(folder.write("file", content)).sealed());
}

TEST_CASE("no process can change a sealed file, through any descriptor") {
  if (!testing::has_memory_files()) SKIP_CASE("no memory files");
  const auto content = testing::random_bytes(20'000);
  const auto mapping = memory_file(content);
  const std::string path = "/proc/self/fd/" + std::to_string(mapping.descriptor());
  CHECK((::fcntl(mapping.descriptor(), F_GETFL) & O_ACCMODE) == O_RDONLY);  // old kernels map no other
  const os::Fd writable(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  REQUIRE(writable);
  CHECK(::pwrite(writable.get(), "x", 1, 0) == -1);
  CHECK(errno == EPERM);
  for (const off_t size : {off_t{0}, off_t{100'000}}) CHECK(::ftruncate(writable.get(), size) == -1);
  CHECK(errno == EPERM);
  CHECK(::fallocate(writable.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) == -1);
  CHECK(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, writable.get(), 0) == MAP_FAILED);
  auto* first = const_cast<std::byte*>(mapping.bytes().data());  // NOLINT: for the kernel to refuse
  CHECK(::mprotect(first, 4096, PROT_READ | PROT_WRITE) == -1);
  CHECK(testing::same_bytes(mapping.bytes(), content));
}

TEST_CASE("the mapping outlives its writer, and a write after the end changes nothing") {
  const auto content = testing::random_bytes(100'000);
  const auto mapping = [&] {
    MemoryFileWriter first("content", content.size());
    MemoryFileWriter writer(std::move(first));
    writer.write(content);
    writer.commit();
    CHECK_THROWS_AS(writer.overwrite(0, Bytes(content).first(10)), OsError);
    return writer.open();
  }();
  CHECK(testing::same_bytes(mapping.bytes(), content));
}

TEST_CASE("commit into memory refuses a size that was not announced") {
  MemoryFileWriter writer("content", 200);
  writer.write(testing::random_bytes(100));
  CHECK_THROWS_AS(writer.commit(), OsError);
}

TEST_CASE("a size that no machine has is refused before anything is written") {
  const int error = error_of_size(std::uint64_t{1} << 55U);
  if (error == 0) MESSAGE("the place for unnamed files cannot reserve space");
  CHECK((error == 0 || error == ENOMEM || error == ENOSPC || error == EFBIG));
}

TEST_CASE("more memory than may be used is an error, and not the end of the process") {
  const auto available = available_memory();
  if (!available || !testing::has_memory_files()) SKIP_CASE("no memory files, or available memory is not known");
  CHECK(error_of_size(available->bytes + (std::uint64_t{1} << 30U)) == ENOMEM);
}

TEST_CASE("a reservation that fails is an error with the name") {
  const auto before = ::signal(SIGXFSZ, SIG_IGN);
  rlimit unlimited{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &unlimited) == 0);
  const rlimit limited{1 << 20U, unlimited.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &limited) == 0);
  const int error = error_of_size(std::uint64_t{2} << 20U);
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &unlimited) == 0);
  (void)::signal(SIGXFSZ, before);
  if (error == 0) MESSAGE("no space can be reserved here");
  CHECK((error == 0 || error == EFBIG));
}

TEST_CASE("any name will do") {
  for (const auto& name : {std::string(), std::string("a/b\n"), std::string(1000, 'n')}) {
    MemoryFileWriter writer(name, 1);
    CHECK(writer.name() == name);
  }
}

}  // namespace onecopy
