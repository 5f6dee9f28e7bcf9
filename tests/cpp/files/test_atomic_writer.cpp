#include <doctest/doctest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "onecopy/base/error.hpp"
#include "onecopy/files/atomic_writer.hpp"
#include "scratch_folder.hpp"
#include "writers.hpp"

namespace onecopy {
namespace {

void write_file(const std::filesystem::path& path, Bytes content) {
  AtomicWriter writer(path, content.size());
  writer.write(content);
  writer.commit();
}

}  // namespace

TEST_CASE_FIXTURE(InFolder, "what is written in pieces of any size comes back whole") {
  const auto content = testing::random_bytes((std::size_t{40} << 20U) + 17);
  AtomicWriter writer(folder / "target", content.size());
  testing::write_in_pieces(writer, content);
  writer.commit();
  CHECK(testing::read_file(folder / "target") == content);
  CHECK(folder.file_count() == 1);
}

TEST_CASE_FIXTURE(InFolder, "overwriting reaches bytes on the disk, bytes still held, and both at once") {
  constexpr std::size_t piece = std::size_t{2} << 20U;
  std::vector<std::byte> content(piece + 1000);
  AtomicWriter writer(folder / "target", content.size());
  writer.write(content);
  testing::patch(writer, content, {0, piece - 100, piece + 500});
  writer.commit();
  CHECK(testing::read_file(folder / "target") == content);
}

TEST_CASE_FIXTURE(InFolder, "commit refuses a size that was not announced") {
  AtomicWriter writer(folder / "target", 200);
  writer.write(testing::random_bytes(100));
  CHECK_THROWS_AS(writer.commit(), OsError);
  CHECK(!std::filesystem::exists(folder / "target"));
}

TEST_CASE_FIXTURE(InFolder, "after a write that failed no commit succeeds") {
  const auto content = testing::random_bytes(std::size_t{17} << 20U);
  const auto before = ::signal(SIGXFSZ, SIG_IGN);
  rlimit unlimited{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &unlimited) == 0);
  {
    AtomicWriter writer(folder / "target", content.size());
    writer.write(content);
    const rlimit limited{1, unlimited.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &limited) == 0);
    CHECK_THROWS_AS(writer.overwrite(100, Bytes(content).first(10)), OsError);  // a header, say
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &unlimited) == 0);
    CHECK_THROWS_AS(writer.commit(), OsError);
    CHECK_THROWS_AS(writer.commit(), OsError);
  }
  (void)::signal(SIGXFSZ, before);
  CHECK(folder.file_count() == 0);
}

TEST_CASE_FIXTURE(InFolder, "hidden files of dead writers are swept, those of the living and of others stay") {
  write_file(folder / "target", testing::random_bytes(10));
  // What a writer without O_TMPFILE leaves when it is killed; the prefix is the one of this target.
  const pid_t child = ::fork();
  if (child == 0) {
    AtomicWriter writer(folder / "target", 100);
    writer.write(testing::random_bytes(50));
    ::raise(SIGKILL);
  }
  ::waitpid(child, nullptr, 0);
  folder.write(".onecopy-00000000-11111111", testing::random_bytes(3));
  write_file(folder / "target", testing::random_bytes(10));
  CHECK(folder.file_count() == 2);
}

}  // namespace onecopy
