#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <set>

#include "onecopy/arrays/array_file.hpp"
#include "onecopy/arrays/array_writer.hpp"
#include "onecopy/base/error.hpp"
#include "onecopy/files/memory_file_writer.hpp"
#include "scratch_folder.hpp"

namespace onecopy {
namespace {

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

}  // namespace onecopy
