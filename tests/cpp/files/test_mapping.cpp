// Mappings of files, copies of files in sealed memory, and what identifies the contents of a file.
#include "back_end.hpp"
#include "files/page_span.hpp"
#include "files/reading.hpp"
#include "memory_files.hpp"
#include "onecopy/base/error.hpp"
#include "onecopy/files/mapping.hpp"
#include "onecopy/files/snapshot.hpp"
#include "os/os.hpp"
#include "precompiled.hpp"
#include "pretend_pages.hpp"
#include "scratch_folder.hpp"

namespace onecopy {
namespace {

__extension__ using Wide = unsigned __int128;

constexpr std::uint64_t two_mib = std::uint64_t{2} << 20U;

constexpr std::array<std::size_t, 3> page_sizes{4096, 16384, 65536};

}  // namespace

TEST_CASE_FIXTURE(InFolder, "what uses the pages is gone before they are unmapped, the last one first") {
  struct Marker : PagesUser {
    Marker(Bytes bytes, std::vector<int>& ended, int place) : pages(bytes), order(ended), number(place) {}
    ~Marker() override { order.push_back(number + std::to_integer<int>(pages.back())); }
    Bytes pages;
    std::vector<int>& order;
    int number;
  };
  const auto path = folder.write("data", std::vector<std::byte>(100, std::byte{1}));
  std::vector<int> order;
  {
    const auto mapping = Mapping::open(path);
    mapping.keep(std::make_unique<Marker>(mapping.bytes(), order, 10));
    mapping.keep(std::make_unique<Marker>(mapping.bytes(), order, 20));
    CHECK(order.empty());
  }
  CHECK(order == std::vector{21, 11});
}

TEST_CASE("page_span covers the range, in whole pages, and no page more") {
  std::mt19937_64 random(3);
  constexpr std::uint64_t largest = std::numeric_limits<std::int64_t>::max();  // no file is larger
  for (int round = 0; round < 100'000; ++round) {
    const std::uint64_t page = page_sizes.at(random() % page_sizes.size());
    const std::uint64_t offset = random() % 2 == 0 ? largest - random() % 100'000 : random() % 1'000'000;
    const std::uint64_t length = std::min(random() % 300'000 + 1, largest - offset + 1);
    const PageSpan span = page_span({offset, length}, page);
    CHECK(span.offset % page == 0);
    CHECK(span.length % page == 0);
    CHECK(span.offset + span.lead == offset);
    CHECK(span.lead < page);
    CHECK(Wide{span.offset} + span.length >= Wide{offset} + length);
    CHECK(Wide{span.offset} + span.length < Wide{offset} + length + page);
    CHECK(slack_after({offset, length}, page) < page);
  }
}

TEST_CASE_FIXTURE(InFolder, "any range of a file shows the file's bytes, at every page size, mapped and copied") {
  const auto content = testing::random_bytes(300'001);
  const auto path = folder.write("data", content);
  std::mt19937_64 random(5);
  for (const std::size_t page : testing::possible_pages()) {
    const testing::PretendPages pretend(page);
    for (int round = 0; round < 60; ++round) {
      const std::uint64_t offset = random() % content.size();
      const std::uint64_t length = random() % (content.size() - offset) + 1;
      const Mode mode = round % 3 == 0 ? Mode::copy : Mode::map;
      const auto mapping = Mapping::open(path, {.offset = offset, .length = length, .mode = mode});
      CHECK(testing::same_bytes(mapping.bytes(), Bytes(content).subspan(offset, length)));
      CHECK(reinterpret_cast<std::uintptr_t>(mapping.bytes().data()) % two_mib == offset % two_mib);
      CHECK(mapping.file_offset() == offset);
    }
  }
}

TEST_CASE_FIXTURE(InFolder, "64 bytes after the end can be read, wherever the end lies in its page") {
  for (const std::size_t page : testing::possible_pages()) {
    const testing::PretendPages pretend(page);
    for (const std::size_t size :
         {std::size_t{1}, page - 65, page - 64, page - 63, page - 1, page, page + 1, 3 * page}) {
      const auto path = folder.write("data", testing::random_bytes(size));
      for (const Mode mode : {Mode::map, Mode::copy}) {
        const auto mapping = Mapping::open(path, {.mode = mode});
        const volatile std::byte* end = mapping.bytes().data() + mapping.bytes().size();
        for (std::size_t i = 0; i < Mapping::readable_tail; ++i) CHECK(end[i] == std::byte{0});
      }
    }
  }
}

TEST_CASE_FIXTURE(InFolder, "a moved mapping keeps its address, and the old one has nothing") {
  const auto content = testing::random_bytes(9000);
  auto first = Mapping::open(folder.write("a", content));
  const auto* address = first.bytes().data();
  Mapping second = std::move(first);
  CHECK(second.bytes().data() == address);
  CHECK(first.bytes().empty());  // NOLINT(bugprone-use-after-move): that it is empty is the point
  second = Mapping::open(folder.write("b", testing::random_bytes(10, 2)));
  CHECK(second.bytes().size() == 10);
}

TEST_CASE_FIXTURE(InFolder, "a reader leaves in the page cache what was asked for" * testing::linux_only()) {
  const auto content = testing::random_bytes(std::size_t{16} << 20U);
  const auto fd = os::open_read(folder.write("data", content).string());
  const auto facts = [&] { return os::cached_in_file(fd.value.get(), {0, content.size()}); };
  const auto cached = [&] { return facts().value.cached; };
  (void)os::sync_file(fd.value.get());
  (void)os::drop_cached(fd.value.get(), {0, 0});
  if (!facts()) SKIP_CASE("cached pages are not counted");
  if (!os::reopen_direct(fd.value.get()) || cached() != 0) SKIP_CASE("this file system has no direct reads");
  std::vector<std::byte> memory(content.size() + os::direct_alignment);
  auto* begin = memory.data() + (os::direct_alignment - reinterpret_cast<std::uintptr_t>(memory.data()) %
                                                            os::direct_alignment);  // NOLINT(*-reinterpret-cast)
  const os::MutableBytes into{begin, content.size()};
  for (const auto leaves : {Leaves::nothing, Leaves::read}) {
    std::ranges::fill(into, std::byte{0});
    std::size_t done = 0;
    CHECK(Reader(fd.value.get(), leaves).read(into, 0, done) == 0);
    CHECK(done == content.size());
    CHECK(testing::same_bytes(into, content));
    CHECK(cached() >= (leaves == Leaves::read ? content.size() / 2 : 0));
    if (leaves == Leaves::nothing) CHECK(cached() == 0);
  }
}

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

}  // namespace onecopy
