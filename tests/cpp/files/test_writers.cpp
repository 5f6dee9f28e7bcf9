// Writers of named files, which appear at once, and of memory files, which are sealed.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <csignal>

#include "base/numbers.hpp"
#include "children.hpp"
#include "files/writing/spool.hpp"
#include "memory_files.hpp"
#include "onecopy/base/crc32c.hpp"
#include "onecopy/base/error.hpp"
#include "onecopy/files/atomic_writer.hpp"
#include "onecopy/files/available_memory.hpp"
#include "onecopy/files/mapping.hpp"
#include "os/os.hpp"
#include "precompiled.hpp"
#include "scratch_folder.hpp"

namespace onecopy {
namespace {

constexpr std::size_t size = (std::size_t{40} << 20U) + 1000;

// Writes random bytes in pieces of any size, and then over what was passed on, over what is still held, and over both.
std::vector<std::byte> fill(FileWriter& writer) {
  auto content = testing::random_bytes(size);
  std::mt19937_64 random(1);
  for (std::size_t at = 0; at < size;) {
    const std::size_t largest = random() % 3 == 0 ? std::size_t{30} << 20U : 5000;
    const std::size_t step = std::min<std::size_t>(random() % largest, size - at);
    writer.write(Bytes(content).subspan(at, step));
    at += step;
    CHECK(writer.written() == at);
  }
  const auto patch = testing::random_bytes(200, 2);
  for (const std::size_t at : {std::size_t{0}, size - 1100, size - 200}) {
    writer.overwrite(at, patch);
    std::ranges::copy(patch, content.begin() + static_cast<std::ptrdiff_t>(at));
  }
  CHECK_THROWS_AS(writer.overwrite(size - 10, patch), OsError);
  return content;
}

// No file of this process grows beyond `bytes` meanwhile.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    REQUIRE(::getrlimit(RLIMIT_FSIZE, &before_) == 0);
    const rlimit limited{bytes, before_.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &limited) == 0);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;
  ~FileSizeLimit() {
    (void)::setrlimit(RLIMIT_FSIZE, &before_);
    (void)::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  void (*handler_)(int) = ::signal(SIGXFSZ, SIG_IGN);
};

int error_of_memory(std::uint64_t bytes) {
  try {
    const MemoryFileWriter writer("too large", bytes);
  } catch (const OsError& error) {
    CHECK(error.path() == "too large");
    return error.code();
  }
  MESSAGE("the place for unnamed files cannot reserve space");
  return 0;
}

}  // namespace

TEST_CASE_FIXTURE(AtPath, "what is written in pieces of any size, and written over, comes back whole") {
  AtomicWriter writer(path, size);
  const auto content = fill(writer);
  writer.commit();
  CHECK(testing::same_bytes(testing::read_file(path), content));
  CHECK(folder.file_count() == 1);
}

TEST_CASE("what is written into memory comes back whole, outlives its writer, and is not written again") {
  std::vector<std::byte> content;
  const auto mapping = [&] {
    const std::string name = std::string("any/name\n") + std::string(1000, 'n');
    if (testing::has_memory_files()) CHECK(os::create_sealable(name));
    MemoryFileWriter first(name, size);
    MemoryFileWriter writer(std::move(first));
    content = fill(writer);
    CHECK_THROWS_AS((void)writer.open(), OsError);  // before it is whole
    writer.commit();
    CHECK_THROWS_WITH_AS(writer.overwrite(0, Bytes(content).first(10)), doctest::Contains("already finished"), OsError);
    const auto copy = writer.open({.offset = 12345, .mode = Mode::copy});
    CHECK(testing::same_bytes(copy.bytes(), Bytes(content).subspan(12345)));
    return writer.open();
  }();
  CHECK(testing::same_bytes(mapping.bytes(), content));
  CHECK(!mapping.changed());
}

TEST_CASE_FIXTURE(AtPath, "a commit of fewer bytes than were announced is refused, and leaves nothing") {
  AtomicWriter file(path, 200);
  MemoryFileWriter memory("content", 200);
  for (FileWriter* writer : std::initializer_list<FileWriter*>{&file, &memory}) {
    writer->write(testing::random_bytes(100));
    CHECK_THROWS_AS(writer->commit(), OsError);
  }
  CHECK(!std::filesystem::exists(path));
}

TEST_CASE_FIXTURE(AtPath, "after a write that failed no commit succeeds") {
  const auto content = testing::random_bytes(std::size_t{17} << 20U);
  {
    AtomicWriter writer(path, content.size());
    writer.write(content);
    {
      const FileSizeLimit limit(1);
      CHECK_THROWS_AS(writer.overwrite(100, Bytes(content).first(10)), OsError);  // a header, say
    }
    CHECK_THROWS_AS(writer.commit(), OsError);
    CHECK_THROWS_AS(writer.commit(), OsError);
  }
  CHECK(folder.file_count() == 0);
}

TEST_CASE_FIXTURE(AtPath, "hidden files of dead writers are swept, those of the living and of others stay") {
  // What a writer without O_TMPFILE leaves when it is killed; the prefix is the one of this target.
  CHECK(WTERMSIG(testing::status_of_child([&] {
          AtomicWriter writer(path, 100);
          writer.write(testing::random_bytes(50));
          return ::raise(SIGKILL) == 0;
        })) == SIGKILL);
  const auto name = path.filename().string();
  for (int number = 0; number < 8; ++number)
    folder.write(".onecopy-" + hexadecimal(crc32c(0, std::as_bytes(std::span(name)))) + "-" + std::to_string(number),
                 {});
  folder.write(".onecopy-00000000-11111111", testing::random_bytes(3));
  AtomicWriter living(path, 10);
  living.write(testing::random_bytes(10));
  AtomicWriter writer(path, 10);
  writer.write(testing::random_bytes(10));
  writer.commit();
  CHECK(testing::status_of_child([&] { return AtomicWriter(std::move(living)).written() == 10; }) == 0);
  living.commit();  // although a child has dropped it
  CHECK(folder.file_count() == 2);
}

TEST_CASE_FIXTURE(InFolder, "a finished memory file is sealed where the kernel has seals, and the report says which") {
  const auto content = testing::random_bytes(100'000);
  MemoryFileWriter writer("content", content.size());
  const auto before = writer.reason();
  writer.write(content);
  writer.commit();
  CHECK(writer.open().sealed() == testing::has_memory_files());
  CHECK((writer.reason().find("cannot be sealed") == std::string::npos) == testing::has_memory_files());
  CHECK((writer.reason() != before) == testing::has_memory_files());
  // In a folder it is a file without a name, which goes with its last descriptor.
  MemoryFileWriter on_disk("content", content.size(), folder.path());
  on_disk.write(content);
  on_disk.commit();
  const Mapping mapping = on_disk.open();
  CHECK(testing::same_bytes(mapping.bytes(), content));
  CHECK_FALSE(mapping.sealed());
  CHECK(folder.file_count() == 0);
  CHECK(on_disk.reason().find(folder.path().string()) != std::string::npos);
  CHECK_THROWS_AS(MemoryFileWriter("content", 10, folder.path() / "none"), OsError);
}

TEST_CASE("no process can change a sealed file, through any descriptor") {
  if (!testing::has_memory_files()) SKIP_CASE("no memory files");
  const auto content = testing::random_bytes(20'000);
  const auto mapping = testing::memory_file(content);
  const std::string path = "/proc/self/fd/" + std::to_string(mapping.descriptor());
  CHECK((::fcntl(mapping.descriptor(), F_GETFL) & O_ACCMODE) == O_RDONLY);  // old kernels map no other
  const os::Fd writable(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  REQUIRE(writable);
  CHECK(::pwrite(writable.get(), "x", 1, 0) == -1);
  CHECK(errno == EPERM);
  for (const off_t length : {off_t{0}, off_t{100'000}}) CHECK(::ftruncate(writable.get(), length) == -1);
  CHECK(errno == EPERM);
  CHECK(::fallocate(writable.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) == -1);
  CHECK(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, writable.get(), 0) == MAP_FAILED);
  auto* first = const_cast<std::byte*>(mapping.bytes().data());  // NOLINT: for the kernel to refuse
  CHECK(::mprotect(first, 4096, PROT_READ | PROT_WRITE) == -1);
  CHECK(testing::same_bytes(mapping.bytes(), content));
  for (const int seals : {F_SEAL_WRITE, F_SEAL_GROW, F_SEAL_SHRINK, F_SEAL_GROW | F_SEAL_SHRINK}) {
    const auto partly = os::create_sealable("partly sealed");
    REQUIRE(::fcntl(partly.value.get(), F_ADD_SEALS, seals) == 0);
    CHECK_FALSE(os::is_sealed(partly.value.get()));
  }
}

TEST_CASE("memory that no machine has, and a reservation that fails, are errors with the name") {
  const int of_no_machine = error_of_memory(std::uint64_t{1} << 55U);
  CHECK((of_no_machine == 0 || of_no_machine == ENOMEM || of_no_machine == ENOSPC || of_no_machine == EFBIG));
  const FileSizeLimit limit(1U << 20U);
  const int beyond_the_limit = error_of_memory(2U << 20U);
  CHECK((beyond_the_limit == 0 || beyond_the_limit == EFBIG));
}

TEST_CASE("more memory than may be used is an error, and not the end of the process") {
  const auto available = available_memory();
  if (!available || !testing::has_memory_files()) SKIP_CASE("no memory files, or available memory is not known");
  CHECK(error_of_memory(available->bytes + (std::uint64_t{1} << 30U)) == ENOMEM);
}

TEST_CASE_FIXTURE(InFolder, "pieces of any size are read back in any order, from memory, from the file and from both") {
  std::filesystem::path place = folder.path();
  SUBCASE("in a folder") {}
  SUBCASE("in memory") { place.clear(); }
  Spool spool(place);
  const auto all = testing::random_bytes(5 * Spool::held);
  std::mt19937_64 random(1);
  for (std::size_t at = 0; at < all.size();) {
    const std::size_t wanted = random() % 4 == 0 ? random() % (2 * Spool::held) : random() % 1000;
    const std::size_t size = std::min(wanted, all.size() - at);
    CHECK(spool.append(std::span(all).subspan(at, size)) == at);
    at += size;
    CHECK(spool.size() == at);
    const std::size_t begin = random() % (at + 1);
    std::vector<std::byte> piece(at - begin);
    spool.read(begin, piece);
    CHECK(testing::same_bytes(piece, std::span(all).subspan(begin, piece.size())));
  }
  CHECK(folder.file_count() == 0);
}

}  // namespace onecopy
