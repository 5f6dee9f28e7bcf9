// A value in a memory file: another process opens its descriptor, and keeps it when the first is killed.
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "onecopy/base/error.hpp"
#include "onecopy/structs/structs.hpp"
#include "precompiled.hpp"

using onecopy::OwningSpan;

namespace {

struct Index {
  std::uint64_t seed = 4;
  OwningSpan<std::uint64_t> words;
  std::vector<std::string> names;
};

Index index(std::size_t words) {
  Index one;
  std::vector<std::uint64_t> all(words);
  for (std::size_t i = 0; i < words; ++i) all[i] = i;
  one.words = std::move(all);
  one.names = {"a", "b"};
  return one;
}

}  // namespace

TEST_CASE("a shared value is read in place, and cannot be written") {
  const auto shared = onecopy::share(index(1'000'000), {.name = "test-index"});
  CHECK(shared->words[999'999] == 999'999);
  CHECK(shared->names[1] == "b");
  CHECK(shared.mapping()->path() == "test-index");
  CHECK(shared.verify().bytes > 8'000'000);
  REQUIRE(shared.report().collapsed);
  CHECK_FALSE(shared.report().collapsed->reason.empty());
  if (shared.mapping()->sealed()) CHECK(::ftruncate(shared.descriptor(), 0) != 0);
}

TEST_CASE("the descriptor opens as the same type, and as another it is refused") {
  const auto shared = onecopy::share(index(10));
  const auto again = onecopy::open<Index>(shared.descriptor());
  CHECK(again->words == shared->words);
  const auto copied = onecopy::open<Index>(shared.descriptor(), "copy", {.mode = onecopy::Mode::copy});
  CHECK(copied->words == shared->words);
  CHECK_THROWS_WITH_AS(onecopy::open<std::vector<int>>(shared.descriptor(), "the index"),
                       doctest::Contains("the index: 'value'"), onecopy::FormatError);
  CHECK_THROWS_AS(onecopy::open<Index>(-1), onecopy::OsError);
}

TEST_CASE("another process has it by /proc, and keeps it when the first is killed") {
  std::array<int, 2> ready{};
  std::array<int, 2> never{};
  REQUIRE(::pipe(ready.data()) == 0);
  REQUIRE(::pipe(never.data()) == 0);
  const pid_t builder = ::fork();
  if (builder == 0) {
    const auto shared = onecopy::share(index(100'000));
    const int descriptor = shared.descriptor();
    static_cast<void>(!::write(ready[1], &descriptor, sizeof descriptor));
    char byte = 0;
    static_cast<void>(!::read(never[0], &byte, 1));
    ::_exit(0);
  }
  int descriptor = -1;
  REQUIRE(::read(ready[0], &descriptor, sizeof descriptor) == sizeof descriptor);
  const std::string path = "/proc/" + std::to_string(builder) + "/fd/" + std::to_string(descriptor);
  const auto theirs = onecopy::open<Index>(path);
  ::kill(builder, SIGKILL);
  int status = 0;
  ::waitpid(builder, &status, 0);
  CHECK(WIFSIGNALED(status));
  std::uint64_t sum = 0;
  for (const auto word : theirs->words) sum += word;
  CHECK(sum == 100'000ULL * 99'999 / 2);
  CHECK_THROWS_AS(onecopy::open<Index>(path), onecopy::OsError);
  for (const int end : {ready[0], ready[1], never[0], never[1]}) ::close(end);
}
