// Copies of files in sealed memory, and what identifies the contents of a file.
#include "onecopy/files/snapshot.hpp"

#include <unistd.h>

#include "memory_files.hpp"
#include "onecopy/base/error.hpp"
#include "onecopy/files/users.hpp"
#include "precompiled.hpp"
#include "scratch_folder.hpp"

namespace onecopy {

TEST_CASE_FIXTURE(InFolder, "a snapshot is sealed and has the bytes of the file after a lead of zeros") {
  for (const std::size_t size : {1U, 300'000U, 20'000'000U}) {
    const auto bytes = testing::random_bytes(size, size);
    const auto file = Mapping::open(folder.write("data", bytes));
    for (const std::uint64_t lead : {0U, 100U}) {
      for (const bool drop_source : {false, true}) {
        const auto take = [&] { return take_snapshot(file.descriptor(), "data", 2, drop_source, lead); };
        if (!testing::has_memory_files()) {
          CHECK_THROWS_AS((void)take(), OsError);
          continue;
        }
        const auto snapshot = take();
        CHECK(snapshot.sealed());
        CHECK(why_not_identified(snapshot.descriptor()).starts_with("in memory (tmpfs)"));
        CHECK(testing::same_bytes(snapshot.bytes().first(lead), std::vector<std::byte>(lead)));
        CHECK(testing::same_bytes(snapshot.bytes().subspan(lead), bytes));
      }
    }
  }
}

TEST_CASE_FIXTURE(InFolder, "what changes in a file changes its identity") {
  const auto path = folder.write("data", testing::random_bytes(100));
  const auto mapping = Mapping::open(path);
  const int fd = mapping.descriptor();
  CHECK_NOTHROW(expect_identity(mapping, mapping.identity()));
  auto other = mapping.identity();
  ++other.size;
  CHECK_THROWS_WITH_AS(expect_identity(mapping, other), doctest::Contains("written or truncated"), FileChanged);
  ++other.inode;
  CHECK_THROWS_WITH_AS(expect_identity(mapping, other), doctest::Contains("a different file"), FileChanged);

  const auto before = content_identity(fd, true);
  {
    std::ofstream writer(path, std::ios::app);
    CHECK_FALSE(why_not_identified(fd).empty());
    writer << "more";
  }
  const auto after = content_identity(fd, false);
  CHECK(after.inode == before.inode);
  CHECK(after.size == before.size + 4);
  CHECK_THROWS_AS((void)content_identity(-1, true), OsError);
  const auto again = Mapping::open(path);
  CHECK_FALSE(again.changed());
  std::filesystem::remove(path);
  CHECK(again.changed());
}

TEST_CASE_FIXTURE(InFolder, "files belong to the user who creates them") {
  const auto path = folder.write("data", {});
  const Mapping mapping = Mapping::open(folder.write("more", testing::random_bytes(1)));
  CHECK(owner_of(path) == ::geteuid());
  CHECK(owner_of(mapping.descriptor()) == ::geteuid());
  CHECK(known_user(::geteuid()) == ::geteuid());
  CHECK_THROWS_AS((void)owner_of(folder / "missing"), OsError);
}

}  // namespace onecopy
