#include <sys/mman.h>
#include <unistd.h>

#include "back_end.hpp"
#include "onecopy/base/error.hpp"
#include "onecopy/processes/equal_pages.hpp"
#include "precompiled.hpp"
#include "scratch_folder.hpp"

namespace onecopy {
namespace {

const std::size_t page = EqualPages::page_bytes();

// Anonymous memory of this process.
class Memory {
 public:
  explicit Memory(std::size_t pages) : size_(pages * page) {
    void* at = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(at != MAP_FAILED);
    begin_ = static_cast<std::byte*>(at);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() { ::munmap(begin_, size_); }

  std::byte* at(std::size_t number) const { return begin_ + number * page; }
  void fill(std::size_t number, std::uint64_t seed) const {
    std::memcpy(at(number), testing::random_bytes(page, seed).data(), page);
  }
  std::vector<ByteRange> whole() const { return {{reinterpret_cast<std::uintptr_t>(begin_), size_}}; }

 private:
  std::size_t size_;
  std::byte* begin_ = nullptr;
};

double bytes_of(std::size_t pages) { return static_cast<double>(pages * page); }

std::uint64_t self() { return static_cast<std::uint64_t>(::getpid()); }

}  // namespace

TEST_CASE("pages that are equal are found in one source and in several, and zeros are counted apart" *
          testing::linux_only()) {
  const Memory one(8);  // page 7 is not touched
  const Memory other(4);
  for (std::size_t i = 0; i < 4; ++i) one.fill(i, i);
  one.fill(4, 0);  // again
  std::memset(one.at(5), 0, page);
  std::memset(one.at(6), 7, page);
  other.fill(0, 2);
  other.fill(1, 3);
  other.fill(2, 99);
  other.fill(3, 100);
  other.at(3)[17] ^= std::byte{1};
  EqualPages pages;
  const auto read = pages.add(self(), one.whole());
  CHECK(read.present == 7 * page);
  CHECK(read.read == 7 * page);
  CHECK(read.zeros == page);
  CHECK(read.swapped == 0);
  CHECK(pages.add(self(), other.whole()).read == 4 * page);
  const auto copies = pages.compare();
  REQUIRE(copies.size() == 2);
  CHECK(copies[0].bytes == doctest::Approx(bytes_of(1)));
  CHECK(copies[1].bytes == doctest::Approx(bytes_of(2)));
  CHECK(copies[1].error == 0);
  CHECK_THROWS_AS(pages.compare(), std::logic_error);
  CHECK_THROWS_AS(pages.add(self(), one.whole()), std::logic_error);
}

TEST_CASE("a range is read where it is mapped, and its pages are found in a file at any position, each once" *
          testing::linux_only()) {
  const Memory memory(600);
  for (std::size_t i = 0; i < 600; ++i) memory.fill(i, i % 300);
  REQUIRE(::munmap(memory.at(10), page) == 0);
  EqualPages pages;
  CHECK(pages.add(self(), memory.whole()).read == 599 * page);
  CHECK_THROWS_AS(pages.take({}), std::logic_error);
  CHECK(pages.compare()[0].bytes == doctest::Approx(bytes_of(299)));
  std::size_t first = 13;
  for (const std::size_t shift : {0U, 1U, 7U, 4095U}) {
    std::vector<std::byte> file(shift + 5 * page);
    std::memcpy(file.data() + shift, memory.at(first), 5 * page);
    file[shift + 2 * page] ^= std::byte{1};
    CHECK(pages.occurs(file));
    CHECK(pages.take(file) == std::vector<double>{bytes_of(8)});
    CHECK_FALSE(pages.occurs(file));
    file[shift + 2 * page] ^= std::byte{1};
    CHECK(pages.take(file) == std::vector<double>{bytes_of(2)});  // the others were taken
    first += 5;
  }
  CHECK(pages.take(std::vector<std::byte>(page - 1)) == std::vector<double>{0});
  const Memory often(9);  // four pages of one content, and five of another, which says nothing about a file
  for (std::size_t i = 0; i < 9; ++i) often.fill(i, i < 4 ? 1 : 2);
  EqualPages counted;
  (void)counted.add(self(), often.whole());
  (void)counted.compare();
  CHECK(counted.take({often.at(0), page}) == std::vector<double>{bytes_of(4)});
  CHECK(counted.take({often.at(8), page}) == std::vector<double>{0});
}

TEST_CASE("a process that does not exist, and a share that is none, are errors") {
  for (const double share : {0.0, 1.5}) CHECK_THROWS_AS(EqualPages{share}, std::invalid_argument);
  EqualPages pages;
  CHECK_THROWS_AS(pages.add(1U << 30U, {}), OsError);
}

}  // namespace onecopy
