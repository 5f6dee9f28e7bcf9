#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <limits>
#include <random>

#include "back_end.hpp"
#include "files/page_span.hpp"
#include "onecopy/base/error.hpp"
#include "onecopy/files/mapping.hpp"
#include "os/os.hpp"
#include "scratch_folder.hpp"

namespace onecopy {
namespace {

__extension__ using Wide = unsigned __int128;

constexpr std::uint64_t two_mib = std::uint64_t{2} << 20U;

// Rounding to larger pages works on every machine: all are multiples of the real one.
class PretendPages {
 public:
  explicit PretendPages(std::size_t size) { os::pretend_page_size(size); }
  PretendPages(const PretendPages&) = delete;
  PretendPages& operator=(const PretendPages&) = delete;
  ~PretendPages() { os::pretend_page_size(0); }
};

constexpr std::array<std::size_t, 3> page_sizes{4096, 16384, 65536};

int error_of(const std::filesystem::path& path, const MappingOptions& options = {}) {
  try {
    const auto mapping = Mapping::open(path, options);
  } catch (const OsError& error) {
    CHECK(error.path() == path.string());
    CHECK(!error.operation().empty());
    return error.code();
  }
  return 0;
}

MappingOptions range(std::uint64_t offset, std::optional<std::uint64_t> length, Mode mode = Mode::map) {
  MappingOptions options;
  options.offset = offset;
  options.length = length;
  options.mode = mode;
  return options;
}

}  // namespace

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

TEST_CASE("congruent_after is the first address with the offset's place in 2 MiB") {
  std::mt19937_64 random(4);
  for (int round = 0; round < 10'000; ++round) {
    const std::uint64_t from = (random() >> 17U) & ~std::uint64_t{4095};
    const std::uint64_t offset = (random() >> 1U) & ~std::uint64_t{4095};
    const std::uint64_t at = congruent_after(from, offset, two_mib);
    CHECK(at >= from);
    CHECK(at - from < two_mib);
    CHECK(at % two_mib == offset % two_mib);
  }
}

TEST_CASE("any range of a file shows the file's bytes, at every page size, mapped and copied") {
  const testing::ScratchFolder folder;
  const auto content = testing::random_bytes(300'001);
  const auto path = folder.write("data", content);
  std::mt19937_64 random(5);
  for (const std::size_t page : page_sizes) {
    const PretendPages pretend(page);
    for (int round = 0; round < 60; ++round) {
      const std::uint64_t offset = random() % content.size();
      const std::uint64_t length = random() % (content.size() - offset) + 1;
      const Mode mode = round % 3 == 0 ? Mode::copy : Mode::map;
      const auto mapping = Mapping::open(path, range(offset, length, mode));
      CHECK(testing::same_bytes(mapping.bytes(), Bytes(content).subspan(offset, length)));
      CHECK(reinterpret_cast<std::uintptr_t>(mapping.bytes().data()) % two_mib == offset % two_mib);
      CHECK(mapping.file_offset() == offset);
    }
  }
}

TEST_CASE("64 bytes after the end can be read, wherever the end lies in its page") {
  const testing::ScratchFolder folder;
  for (const std::size_t page : page_sizes) {
    const PretendPages pretend(page);
    for (const std::size_t size :
         {std::size_t{1}, page - 65, page - 64, page - 63, page - 1, page, page + 1, 3 * page}) {
      const auto path = folder.write("data", testing::random_bytes(size));
      for (const Mode mode : {Mode::map, Mode::copy}) {
        const auto mapping = Mapping::open(path, range(0, std::nullopt, mode));
        const volatile std::byte* end = mapping.bytes().data() + mapping.bytes().size();
        for (std::size_t i = 0; i < Mapping::readable_tail; ++i) CHECK(end[i] == std::byte{0});
      }
    }
  }
}

TEST_CASE("offsets and lengths near 2^63 and 2^64 are refused, never wrapped") {
  const testing::ScratchFolder folder;
  const auto path = folder.write("data", testing::random_bytes(10'000));
  std::mt19937_64 random(6);
  constexpr std::uint64_t top = std::uint64_t{1} << 63U;
  for (int round = 0; round < 2000; ++round) {
    const auto edge = [&]() -> std::uint64_t {
      const std::uint64_t wobble = random() % 20'000;
      return random() % 2 == 0 ? top - 10'000 + wobble : 0 - wobble - 1;
    };
    const std::uint64_t small = random() % 10'001;
    CHECK(error_of(path, range(edge(), edge())) == EINVAL);
    CHECK(error_of(path, range(edge(), small)) == EINVAL);
    CHECK(error_of(path, range(small, edge())) == EINVAL);
    CHECK(error_of(path, range(edge(), std::nullopt)) == EINVAL);
  }
}

TEST_CASE("what cannot be mapped is one clear error") {
  const testing::ScratchFolder folder;
  const auto path = folder.write("data", testing::random_bytes(100));
  CHECK(error_of(folder / "missing") == ENOENT);
  CHECK(error_of(folder.path()) == EISDIR);
  CHECK(error_of(folder.write("empty", {})) == ENODATA);
  CHECK(error_of(path, range(0, 101)) == EINVAL);
  CHECK(error_of(path, range(100, std::nullopt)) == EINVAL);
  CHECK(error_of(path, range(50, 0)) == EINVAL);
  CHECK(error_of(path / "below a file") == ENOTDIR);
  const auto fifo = folder / "fifo";
  REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
  CHECK(error_of(fifo) == ENODEV);
  std::filesystem::create_symlink("loop", folder / "loop");
  CHECK(error_of(folder / "loop") == ELOOP);
  if (::geteuid() != 0) {  // root may read everything
    ::chmod(path.c_str(), 0);
    CHECK(error_of(path) == EACCES);
  }
}

TEST_CASE("symbolic links lead to the file") {
  const testing::ScratchFolder folder;
  const auto content = testing::random_bytes(5000);
  folder.write("data", content);
  std::filesystem::create_symlink("data", folder / "link");
  const auto mapping = Mapping::open(folder / "link");
  CHECK(testing::same_bytes(mapping.bytes(), content));
}

TEST_CASE("a descriptor without a name maps, and stays the caller's") {
  const testing::ScratchFolder folder;
  const auto content = testing::random_bytes(70'000);
  const auto path = folder.write("data", content);
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  std::filesystem::remove(path);
  {
    const auto mapping = Mapping::from_descriptor(fd, "unlinked", range(1000, 50'000));
    CHECK(testing::same_bytes(mapping.bytes(), Bytes(content).subspan(1000, 50'000)));
    CHECK(!mapping.changed());
  }
  CHECK(::fcntl(fd, F_GETFD) != -1);
  ::close(fd);
  CHECK_THROWS_AS(Mapping::from_descriptor(fd, "closed"), OsError);
}

TEST_CASE("private pages are writable, and the file never changes") {
  const testing::ScratchFolder folder;
  const auto content = testing::random_bytes(20'000);
  const auto path = folder.write("data", content);
  for (const Mode mode : {Mode::map, Mode::copy}) {
    auto options = range(0, std::nullopt, mode);
    options.private_pages = true;
    auto mapping = Mapping::open(path, options);
    auto bytes = mapping.private_bytes();
    REQUIRE(bytes.size() == content.size());
    std::ranges::fill(bytes, std::byte{0x5A});
    CHECK(std::ranges::all_of(mapping.bytes(), [](std::byte byte) { return byte == std::byte{0x5A}; }));
    CHECK(testing::read_file(path) == content);
    auto plain = Mapping::open(path, range(0, std::nullopt, mode));
    CHECK(plain.private_bytes().empty());
    CHECK(testing::same_bytes(plain.bytes(), content));
  }
}

TEST_CASE("a moved mapping keeps its address, and the old one has nothing") {
  const testing::ScratchFolder folder;
  const auto content = testing::random_bytes(9000);
  auto first = Mapping::open(folder.write("a", content));
  const auto* address = first.bytes().data();
  Mapping second = std::move(first);
  CHECK(second.bytes().data() == address);
  CHECK(first.bytes().empty());  // NOLINT(bugprone-use-after-move): that it is empty is the point
  second = Mapping::open(folder.write("b", testing::random_bytes(10, 2)));
  CHECK(second.bytes().size() == 10);
}

TEST_CASE("changed detects writing, truncating, replacing and removing") {
  const testing::ScratchFolder folder;
  const auto content = testing::random_bytes(9000);
  const auto path = folder.write("data", content);
  const auto mapping = Mapping::open(path);
  CHECK(!mapping.changed());
  const auto other = folder.write("other", content);
  std::filesystem::rename(other, path);
  CHECK(mapping.changed());
  const auto fresh = Mapping::open(path);
  CHECK_THROWS_AS(expect_identity(fresh, mapping.identity()), FileChanged);
  CHECK_NOTHROW(expect_identity(fresh, fresh.identity()));
  std::filesystem::resize_file(path, 100);
  CHECK(fresh.changed());
  const auto again = Mapping::open(path);
  std::filesystem::remove(path);
  CHECK(again.changed());
}

TEST_CASE("a copy of a file that is not cached leaves it so" * testing::linux_only()) {
  const testing::ScratchFolder folder;
  const auto content = testing::random_bytes(std::size_t{16} << 20U);
  const auto path = folder.write("data", content);
  const auto fd = os::open_read(path.string());
  const auto cached = [&] { return os::cached_in_file(fd.value.get(), {0, content.size()}).value.cached; };
  (void)os::sync_file(fd.value.get());
  (void)os::drop_cached(fd.value.get(), {0, 0});
  if (!os::reopen_direct(fd.value.get()) || cached() != 0) SKIP_CASE("this file system has no direct reads");
  const auto copy = Mapping::open(path, range(0, std::nullopt, Mode::copy));
  CHECK(cached() == 0);
  CHECK(testing::same_bytes(copy.bytes(), content));
}

TEST_CASE("a large copy by several threads equals the file, whatever is cached") {
  const testing::ScratchFolder folder;
  const auto content = testing::random_bytes((std::size_t{24} << 20U) + 4321);
  const auto path = folder.write("data", content);
  const auto fd = os::open_read(path.string());
  for (const unsigned threads : {1U, 2U, 5U}) {
    (void)os::sync_file(fd.value.get());
    (void)os::drop_cached(fd.value.get(), {0, 0});
    auto options = range(12'345, std::nullopt, Mode::copy);
    options.threads = threads;
    const auto cold = Mapping::open(path, options);
    CHECK(testing::same_bytes(cold.bytes(), Bytes(content).subspan(12'345)));
    options.offset = 0;
    const auto aligned = Mapping::open(path, options);
    CHECK(testing::same_bytes(aligned.bytes(), content));
  }
}

}  // namespace onecopy
