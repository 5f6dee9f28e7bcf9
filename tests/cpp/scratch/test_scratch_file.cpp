#include <unistd.h>

#include "back_end.hpp"
#include "onecopy/base/error.hpp"
#include "onecopy/scratch/publish.hpp"
#include "onecopy/scratch/scratch.hpp"
#include "onecopy/scratch/scratch_file.hpp"
#include "os/os.hpp"
#include "precompiled.hpp"
#include "pretend_pages.hpp"
#include "scratch/direct_writes.hpp"
#include "scratch/place.hpp"
#include "scratch_folder.hpp"

namespace onecopy {
namespace {

constexpr std::uint64_t mib = std::uint64_t{1} << 20U;
const std::uint64_t page = os::page_size();

ScratchFile scratch_in(const testing::ScratchFolder& folder, std::uint64_t size, ScratchOptions options = {}) {
  options.folder = folder.path();
  return ScratchFile::create(size, options);
}

int error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const OsError& error) {
    return error.code();
  }
  return 0;
}

}  // namespace

TEST_CASE_FIXTURE(InFolder, "a scratch file is zeros that can be written, in a file that no folder shows") {
  auto scratch = scratch_in(folder, 100'000, {.name = "canvas"});
  CHECK(os::facts_of(scratch.descriptor()).value.allocated >= 100'000);
  const auto sparse = scratch_in(folder, 100'000, {.reserve = false});
  CHECK(os::facts_of(sparse.descriptor()).value.allocated < 100'000);
  CHECK(folder.file_count() == 0);
  CHECK(scratch.bytes().size() == 100'000);
  CHECK(std::ranges::all_of(scratch.bytes(), [](std::byte one) { return one == std::byte{0}; }));
  CHECK(reinterpret_cast<std::uintptr_t>(scratch.bytes().data()) % os::huge_page == 0);
  std::ranges::fill(scratch.bytes(), std::byte{7});
  const auto some = testing::random_bytes(5000);
  scratch.copy_in(1234, some);
  CHECK(testing::same_bytes(scratch.bytes().subspan(1234, 5000), some));
  CHECK(scratch.bytes()[1233] == std::byte{7});
  scratch.fill({99'000, 1000}, std::byte{9});
  CHECK(scratch.bytes()[98'999] == std::byte{7});
  CHECK(scratch.bytes()[99'999] == std::byte{9});
  scratch.flush();
  CHECK(scratch.name() == "canvas");
  CHECK(scratch.folder() == folder.path().string());
  CHECK(folder.file_count() == 0);
}

TEST_CASE_FIXTURE(InFolder, "sizes, ranges and places that cannot be are errors") {
  CHECK(obstacle_of({os::Storage::local, ""}).empty());
  CHECK(obstacle_of({os::Storage::remote, "nfs"}).find("nfs") != std::string::npos);
  CHECK(error_of([&] { (void)scratch_in(folder, std::uint64_t{1} << 62U); }) != 0);  // before it is reserved
  CHECK(error_of([&] { (void)scratch_in(folder, 1, {.head = 100}); }) == EINVAL);
  CHECK(error_of([&] { (void)scratch_in(folder, 1, {.max_resident = mib - 1}); }) == EINVAL);
  CHECK(error_of([&] { (void)scratch_in(folder, UINT64_MAX); }) == EFBIG);
  CHECK(error_of([&] { (void)scratch_in(folder, UINT64_MAX / 2, {.head = page}); }) == EFBIG);
  auto scratch = scratch_in(folder, 1000);
  const std::vector<std::byte> some(11);
  CHECK(error_of([&] { scratch.copy_in(990, some); }) == EINVAL);
  CHECK(error_of([&] { scratch.copy_in(UINT64_MAX, some); }) == EINVAL);
  CHECK(error_of([&] { scratch.copy_in(0, 100, 3, some); }) == EINVAL);
  CHECK(error_of([&] { scratch.copy_in(0, UINT64_MAX / 2, 11, some); }) == EINVAL);
  CHECK(error_of([&] { scratch.fill({1, 1000}, {}); }) == EINVAL);
  CHECK(error_of([&] { scratch.wrote({1, UINT64_MAX}); }) == EINVAL);
  CHECK(error_of([&] { (void)scratch.release(std::array{ByteRange{1001, 0}}); }) == EINVAL);
  CHECK(error_of([&] { (void)scratch.prefetch(std::array{ByteRange{0, 1001}}); }) == EINVAL);
  auto nothing = scratch_in(folder, 0);  // which can be everything but sealed
  nothing.copy_in(0, {});
  CHECK(nothing.bytes().empty());
  CHECK(nothing.release(std::array{ByteRange{0, 0}}).bytes == 0);
  CHECK(nothing.prefetch(std::array{ByteRange{0, 0}}).complete);
  nothing.flush();
  CHECK(error_of([&] { (void)nothing.seal(); }) == EINVAL);
}

TEST_CASE_FIXTURE(InFolder, "rows of a block are put at their places") {
  auto scratch = scratch_in(folder, 1000);
  const auto some = testing::random_bytes(30);
  scratch.copy_in(5, 100, 3, some);
  for (std::size_t i = 0; i < 3; ++i)
    CHECK(testing::same_bytes(scratch.bytes().subspan(5 + i * 100, 10), std::span(some).subspan(i * 10, 10)));
  CHECK(scratch.bytes()[15] == std::byte{0});
  std::vector<std::byte> back(10);
  scratch.read(105, back);
  CHECK(testing::same_bytes(back, std::span(some).subspan(10, 10)));
  CHECK(error_of([&] { scratch.read(991, back); }) == EINVAL);
  CHECK(error_of([&] { scratch.copy_in(400, 500, 3, some); }) == EINVAL);
  CHECK(scratch.bytes()[400] == std::byte{0});  // none of them, if one does not fit
  CHECK(scratch.bytes()[409] == std::byte{0});
}

TEST_CASE_FIXTURE(InFolder, "rows that are released one after the other leave nothing behind" * testing::linux_only()) {
  constexpr std::uint64_t row = 300'000;
  auto scratch = scratch_in(folder, 128 * row, {.head = 2 * page});
  if (!scratch.memory().resident) SKIP_CASE("resident pages are not counted");
  const auto content = testing::random_bytes(128 * row);
  std::memcpy(scratch.bytes().data(), content.data(), content.size());
  for (std::uint64_t at = 0; at < 128 * row; at += row) (void)scratch.release(std::array{ByteRange{at, row}});
  CHECK(*scratch.memory().resident == 0);
  CHECK(testing::same_bytes(scratch.bytes(), content));
}

TEST_CASE_FIXTURE(InFolder,
                  "what is brought in keeps to the cap, together with what is there" * testing::linux_only()) {
  auto scratch = scratch_in(folder, 32 * mib, {.max_resident = 8 * mib});
  scratch.fill({0, 32 * mib}, std::byte{3});
  if (!scratch.memory().resident) SKIP_CASE("resident pages are not counted");
  CHECK(!scratch.prefetch().complete);
  CHECK(*scratch.memory().resident <= 10 * mib);  // the kernel may read a little ahead
  (void)scratch.release();
  CHECK(scratch.prefetch(std::array{ByteRange{mib, 4 * mib}}).complete);
  CHECK(*scratch.memory().resident >= 3 * mib);
  CHECK(std::ranges::all_of(scratch.bytes(), [](std::byte one) { return one == std::byte{3}; }));
}

TEST_CASE_FIXTURE(InFolder,
                  "max_resident holds for what is written through the kernel, and for what was written past it before" *
                      testing::linux_only()) {
  constexpr std::uint64_t cap = 8 * mib;
  constexpr std::uint64_t size = 64 * mib;
  auto scratch = scratch_in(folder, size, {.head = 2 * page, .max_resident = cap});
  if (!scratch.memory().resident) SKIP_CASE("resident pages are not counted");
  const auto content = testing::random_bytes(size);
  SUBCASE("in order") {
    for (std::uint64_t at = 0; at < size; at += mib) {
      scratch.copy_in(at, std::span(content).subspan(at, mib));
      CHECK(*scratch.memory().resident <= cap);
    }
  }
  SUBCASE("in one call, then past the cap") {
    scratch.copy_in(0, content);
    CHECK(*scratch.memory().resident <= cap);
    std::memcpy(scratch.bytes().data(), content.data(), size);
    CHECK(*scratch.memory().over > 40 * mib);
    scratch.wrote({0, size});
    CHECK(*scratch.memory().over == 0);
  }
  SUBCASE("raw, and then a little through the kernel") {
    std::memcpy(scratch.bytes().data(), content.data(), size);
    for (std::uint64_t at = 0; at < 2 * mib; at += mib) scratch.copy_in(at, std::span(content).subspan(at, mib));
    CHECK(*scratch.memory().over == 0);
  }
  SUBCASE("by four threads") {
    std::vector<std::jthread> threads;
    for (std::uint64_t first = 0; first < 4; ++first)
      threads.emplace_back([&, first] {
        for (std::uint64_t at = first * mib / 2; at < size; at += 2 * mib)
          scratch.copy_in(at, std::span(content).subspan(at, mib / 2));
      });
    threads.clear();
    CHECK(*scratch.memory().resident <= cap + mib);
  }
  CHECK(testing::same_bytes(scratch.bytes(), content));
}

TEST_CASE_FIXTURE(InFolder, "a sealed file is read-only for all: here, through its descriptor, and for raw writes" *
                                testing::linux_only()) {
  auto scratch = scratch_in(folder, mib, {.head = page});
  const auto content = testing::random_bytes(mib);
  scratch.copy_in(0, content);
  const Mapping sealed = scratch.seal();
  CHECK(testing::same_bytes(sealed.bytes(), content));
  CHECK(sealed.file_offset() == page);
  CHECK(scratch.sealed());
  CHECK(error_of([&] { scratch.copy_in(0, content); }) == EPERM);
  CHECK(error_of([&] { scratch.fill({0, 1}, {}); }) == EPERM);
  CHECK(::pwrite(sealed.descriptor(), content.data(), 1, 0) < 0);
  CHECK(testing::same_bytes(scratch.bytes(), content));  // it can still be read
  const Mapping again = scratch.seal();
  CHECK(again.bytes().size() == mib);
}

TEST_CASE_FIXTURE(AtPath, "what is sealed becomes a file in place, whole, or not at all") {
  auto scratch = scratch_in(folder, 10'000, {.head = page});
  const auto content = testing::random_bytes(10'000);
  const auto head = testing::random_bytes(page, 2);
  std::memcpy(scratch.bytes().data(), content.data(), content.size());
  CHECK(error_of([&] { scratch.publish(path, head, page + 10'000); }) == EBUSY);
  const Mapping sealed = scratch.seal();
  CHECK(error_of([&] { scratch.publish(path, std::span(head).first(8), page + 10'000); }) == EINVAL);
  CHECK(error_of([&] { scratch.publish(path, head, page + 9999); }) == EINVAL);
  CHECK(error_of([&] { scratch.publish("/no/such/folder/x", head, page + 10'000); }) == ENOENT);
  CHECK(folder.file_count() == 0);
  REQUIRE(os::set_written(scratch.descriptor(), 12345) == 0);
  const int error = error_of([&] { scratch.publish(path, head, page + 10'004); });
  if (error == EOPNOTSUPP) SKIP_CASE("no unnamed files");
  REQUIRE(error == 0);
  CHECK(folder.file_count() == 1);
  CHECK(os::facts_of(path.string()).value.mtime_ns == 12345);  // as those know it who were given it before
  const auto written = testing::read_file(path);
  REQUIRE(written.size() == page + 10'004);
  CHECK(testing::same_bytes(std::span(written).first(page), head));
  CHECK(testing::same_bytes(std::span(written).subspan(page, 10'000), content));
  CHECK(error_of([&] { scratch.publish(folder / "again", head, page + 10'000); }) == EEXIST);
  CHECK(testing::same_bytes(sealed.bytes(), content));
  if (testing::on_linux) {
    auto other = scratch_in(folder, 1);
    const Mapping one = other.seal();
    CHECK(error_of([&] { other.publish("/dev/shm/onecopy-test", {}, 1); }) == EXDEV);
  }
}

TEST_CASE_FIXTURE(InFolder,
                  "an array has whole pages before it, whatever their size, and becomes a file of arrays in place") {
  const ArraySpec spec{"data", DType::u8, {10'000}};
  const auto content = testing::random_bytes(10'000);
  for (const std::size_t size : testing::possible_pages()) {
    const testing::PretendPages pretended(size);
    for (const std::uint64_t align : {std::uint64_t{64}, std::uint64_t{32768}}) {
      LayoutOptions options;
      options.align = align;
      const std::uint64_t head = head_for(spec, options);
      CHECK(head % size == 0);
      CHECK(head % align == 0);
      auto scratch = scratch_in(folder, content.size(), {.head = head});
      scratch.copy_in(0, content);
      const Mapping sealed = scratch.seal();
      const auto path = folder / (std::to_string(size) + "-" + std::to_string(align));
      const int error = error_of([&] { publish(scratch, path, spec, options); });
      if (error == EOPNOTSUPP) SKIP_CASE("no unnamed files");
      REQUIRE(error == 0);
      const auto written = testing::read_file(path);
      CHECK(testing::same_bytes(std::span(written).subspan(head), content));
    }
  }
  const ArraySpec large{"large", DType::u8, {16 * mib}};
  auto capped = scratch_in(folder, 16 * mib, {.head = head_for(large, {}), .max_resident = 4 * mib});
  capped.fill({0, 16 * mib}, std::byte{1});
  (void)capped.seal();
  publish(capped, folder / "large", large);
  if (const auto resident = capped.memory().resident) CHECK(*resident <= 4 * mib);  // what is read for checksums, too
}

TEST_CASE_FIXTURE(InFolder, "nothing of the whole pages that are written directly stays in memory") {
  constexpr std::uint64_t size = 4 * mib;
  constexpr std::uint64_t part = mib - 4;
  const std::uint64_t unit = std::max<std::uint64_t>(page, os::direct_alignment);
  CHECK(DirectWrites::whole_pages({1, 3 * unit}) == ByteRange{unit, 2 * unit});
  CHECK(DirectWrites::whole_pages({1, 2 * unit - 2}).length == 0);
  auto source = scratch_in(folder, size + 64);  // its memory begins at a page
  source.copy_in(0, testing::random_bytes(size + 64));
  for (const std::uint64_t behind : {std::uint64_t{0}, std::uint64_t{64}}) {  // past the page cache, and through it
    auto scratch = scratch_in(folder, size);
    const auto content = std::as_const(source).bytes().subspan(behind, size);
    for (std::uint64_t at = 0; at < size; at += part)
      scratch.write_direct(at, content.subspan(at, std::min(part, size - at)));
    if (const auto resident = scratch.memory().resident) CHECK(*resident <= 5 * 2 * page);
    CHECK(testing::same_bytes(scratch.bytes(), content));
  }
}

TEST_CASE_FIXTURE(InFolder, "a matrix of values is its rows") {
  Scratch<std::uint16_t> canvas({30, 40}, {.folder = folder.path()});
  for (std::size_t y = 0; y < canvas.rows(); ++y) std::ranges::fill(canvas.row(y), static_cast<std::uint16_t>(y));
  const std::vector<std::uint16_t> two(80, 500);
  canvas.write_rows(28, two);
  CHECK(canvas.values()[27 * 40 + 39] == 27);
  CHECK(canvas.row(29)[39] == 500);
  CHECK(canvas.release_rows(0, 30).bytes != 0);
  CHECK(canvas.prefetch_rows(0, 30).complete);
  canvas.flush();
  CHECK(canvas.memory().bytes == 2400);
  CHECK(canvas.seal().identity().size == 2400);
  CHECK(error_of([&] { (void)Scratch<double>({SIZE_MAX, 2}, {.folder = folder.path()}); }) == EOVERFLOW);
}

}  // namespace onecopy
