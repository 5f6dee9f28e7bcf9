#include "onecopy/base/error.hpp"
#include "onecopy/scratch/scratch_file.hpp"
#include "os/os.hpp"
#include "precompiled.hpp"
#include "scratch/direct_writes.hpp"
#include "scratch_folder.hpp"

namespace onecopy {
namespace {

constexpr std::uint64_t mib = std::uint64_t{1} << 20U;

// Bytes that begin as far behind a page as asked. Other places and lengths: tests/python/scratch_arrays/.
class Placed {
 public:
  Placed(std::uint64_t behind, Bytes bytes)
      : memory_(bytes.size() + os::direct_alignment + behind), size_(bytes.size()) {
    const auto address = reinterpret_cast<std::uintptr_t>(memory_.data());
    at_ = (os::direct_alignment - address % os::direct_alignment) % os::direct_alignment + behind;
    std::ranges::copy(bytes, memory_.begin() + static_cast<std::ptrdiff_t>(at_));
  }
  Bytes bytes() const { return Bytes(memory_).subspan(at_, size_); }

 private:
  std::vector<std::byte> memory_;
  std::size_t size_ = 0;
  std::size_t at_ = 0;
};

}  // namespace

TEST_CASE("the whole pages of a range lie in it, and all bytes beside them are less than one page at each end") {
  const std::uint64_t page = std::max<std::uint64_t>(os::page_size(), os::direct_alignment);
  for (const std::uint64_t offset : {std::uint64_t{0}, std::uint64_t{1}, page - 1, page, page + 1, 5 * page})
    for (const std::uint64_t length : {std::uint64_t{0}, std::uint64_t{1}, page - 1, page, 2 * page - 1, 7 * page}) {
      const ByteRange whole = DirectWrites::whole_pages({offset, length});
      CAPTURE(offset);
      CAPTURE(length);
      CHECK(whole.offset >= offset);
      CHECK(in_bounds(offset + length, whole.offset, whole.length));
      CHECK(whole.length % page == 0);
      if (whole.length == 0) {
        CHECK(length < 2 * page - 1);
      } else {
        CHECK(whole.offset % page == 0);
        CHECK(whole.offset - offset < page);
        CHECK(offset + length - (whole.offset + whole.length) < page);
      }
    }
}

TEST_CASE_FIXTURE(InFolder, "nothing of what is written directly stays in memory") {
  auto scratch = ScratchFile::create(4 * mib, {.folder = folder.path()});
  const auto content = testing::random_bytes(4 * mib);
  for (const std::uint64_t behind : {std::uint64_t{0}, std::uint64_t{64}}) {  // past the page cache, and through it
    for (std::uint64_t at = 0; at < 4 * mib; at += mib)
      scratch.write_direct(at, Placed(behind, Bytes(content).subspan(at, mib)).bytes());
    const auto memory = scratch.memory();
    if (memory.resident) CHECK(*memory.resident == 0);
    CHECK(testing::same_bytes(scratch.bytes(), content));
    std::ranges::fill(scratch.bytes(), std::byte{0});
    (void)scratch.release();
  }
}

}  // namespace onecopy
