#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <set>

#include "memory_files.hpp"
#include "onecopy/arrays/array_file.hpp"
#include "onecopy/arrays/array_writer.hpp"
#include "onecopy/arrays/verify.hpp"
#include "onecopy/base/error.hpp"
#include "onecopy/files/memory_file_writer.hpp"
#include "onecopy/page_cache/page_cache.hpp"
#include "onecopy/page_cache/warm.hpp"
#include "os/os.hpp"
#include "scratch_folder.hpp"

namespace onecopy {
namespace {

constexpr std::size_t array_size = std::size_t{5} << 20U;

ArrayFile shared_arrays() {
  const auto a = testing::random_bytes(array_size, 1);
  const auto b = testing::random_bytes(1000, 2);
  const std::array arrays{NamedArray{{"a", DType::u8, {a.size()}}, a}, NamedArray{{"b", DType::i16, {500}}, b}};
  return save_to_memory("weights", arrays);
}

void check_arrays(const ArrayFile& file) {
  CHECK(testing::same_bytes(file.bytes("a"), testing::random_bytes(array_size, 1)));
  CHECK(testing::same_bytes(file.bytes("b"), testing::random_bytes(1000, 2)));
  CHECK(verify(file).bytes > array_size);
}

// What a process that died might have left behind.
std::set<std::string> leftovers() {
  std::set<std::string> names;
  for (const auto& folder : {std::filesystem::path("/dev/shm"), std::filesystem::temp_directory_path()}) {
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator(folder, ignored))
      if (entry.path().filename().string().starts_with(".onecopy-")) names.insert(entry.path().string());
  }
  return names;
}

}  // namespace

TEST_CASE("a process that is killed while it fills a memory file leaves nothing") {
  const auto before = leftovers();
  const pid_t creator = ::fork();
  if (creator == 0) {
    MemoryFileWriter writer("half", 40'000'000);
    writer.write(testing::random_bytes(20'000'000));
    ::raise(SIGKILL);
  }
  int status = 0;
  ::waitpid(creator, &status, 0);
  CHECK(WTERMSIG(status) == SIGKILL);
  CHECK(leftovers() == before);
}

TEST_CASE("what is asked of a memory file is answered with sense") {
  const auto file = shared_arrays();
  const Mapping& mapping = *file.mapping();
  check_arrays(file);
  const auto answer = residency(mapping);
  if (answer.cached) CHECK(*answer.cached == answer.bytes);
  const auto warmed = warm(mapping);
  CHECK(warmed.complete);
  if (testing::has_memory_files()) {
    CHECK(answer.dirty.value_or(0) == 0);  // there is no disk that lacks it
    const auto evicted = evict(mapping);
    CHECK(evicted.cached_after == evicted.cached_before);
    CHECK(evicted.reason.find("in memory only") != std::string::npos);
  }
  CHECK(!pin(mapping).reason.empty());
  unpin(mapping);
  check_arrays(ArrayFile::from_descriptor(mapping.descriptor(), "again"));
  CHECK(!mapping.changed());
}

TEST_CASE("a layout is written into a file of the caller's choice, and a wrong one is an error") {
  const auto bytes = testing::random_bytes(100);
  auto layout = Layout::plan({{"a", DType::u8, {100}}}, {});
  MemoryFileWriter memory("arrays", layout.file_size() + 1);
  ArrayWriter writer(memory, std::move(layout));
  writer.write(bytes);
  CHECK_THROWS_AS(writer.commit(), OsError);
  const std::array wrong{NamedArray{{"a", DType::u8, {99}}, bytes}};
  CHECK_THROWS_AS((void)save_to_memory("wrong", wrong), FormatError);
  const auto none = save_to_memory("none", {});
  CHECK(none.index().entries().empty());
}

TEST_CASE("a descriptor that leads to no arrays is an error with the name that was given") {
  const testing::ScratchFolder folder;
  const auto fd = os::open_read(folder.write("broken", testing::random_bytes(1000)).string());
  CHECK_THROWS_AS((void)ArrayFile::from_descriptor(-1, "nothing"), OsError);
  try {
    (void)ArrayFile::from_descriptor(fd.value.get(), "the weights");
    FAIL("opened");
  } catch (const FormatError& error) {
    CHECK(std::string(error.what()).starts_with("the weights: "));
  }
}

}  // namespace onecopy
