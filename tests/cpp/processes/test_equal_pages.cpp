#include <sys/mman.h>
#include <unistd.h>

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

// Only Linux lets a process read another one's pages.
bool is_supported() {
  try {
    EqualPages().add(self(), {});
    return true;
  } catch (const OsError& error) {
    CHECK(error.code() == ENOSYS);
    return false;
  }
}

}  // namespace

TEST_CASE("pages that are equal are found in one source and in several, and zeros are counted apart") {
  if (!is_supported()) return;
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

TEST_CASE("a range is read where it is mapped") {
  if (!is_supported()) return;
  const Memory memory(600);
  for (std::size_t i = 0; i < 600; ++i) memory.fill(i, i % 300);
  REQUIRE(::munmap(memory.at(10), page) == 0);
  EqualPages pages;
  CHECK(pages.add(self(), memory.whole()).read == 599 * page);
  CHECK(pages.compare()[0].bytes == doctest::Approx(bytes_of(299)));
}

TEST_CASE("pages of a file are found at any position, each once") {
  if (!is_supported()) return;
  const Memory memory(16);
  for (std::size_t i = 0; i < 16; ++i) memory.fill(i, 1000 + i);
  EqualPages pages;
  pages.add(self(), memory.whole());
  CHECK_THROWS_AS(pages.find({}, 1), std::logic_error);
  pages.compare();
  for (const std::size_t shift : {0U, 1U, 7U, 64U, 4095U}) {
    std::vector<std::byte> file(shift + 5 * page);
    std::memcpy(file.data() + shift, memory.at(3), 5 * page);
    CHECK(pages.find(file, 10 + shift) == std::vector<double>{bytes_of(5)});
    CHECK(pages.find(file, 10 + shift) == std::vector<double>{0});  // counted already for this file
    file[shift + 2 * page] ^= std::byte{1};
    CHECK(pages.find(file, 20000 + shift) == std::vector<double>{bytes_of(4)});
  }
  CHECK(pages.find(std::vector<std::byte>(page - 1), 3) == std::vector<double>{0});
}

TEST_CASE("a random part of the pages gives an estimate with its error") {
  if (!is_supported()) return;
  constexpr std::size_t count = 4096;
  const Memory one(count);
  const Memory other(count);
  for (std::size_t i = 0; i < count; ++i) {
    one.fill(i, i);
    other.fill(i, i < count / 2 ? i : count + i);
  }
  const double truth = bytes_of(count / 2);
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    EqualPages pages(0.25, seed);
    const auto read = pages.add(self(), one.whole());
    CHECK(read.present == count * page);
    CHECK(static_cast<double>(read.read) == doctest::Approx(bytes_of(count / 4)).epsilon(0.15));
    pages.add(self(), other.whole());
    const auto copies = pages.compare();
    CHECK(copies[1].error > 0);
    CHECK(std::abs(copies[1].bytes - truth) < 5 * copies[1].error);
    const Bytes file{one.at(0), count / 2 * page};
    CHECK(pages.find(file, 1)[0] == doctest::Approx(truth).epsilon(0.15));
  }
}

TEST_CASE("a block of equal bytes costs a bounded number of comparisons") {
  if (!is_supported()) return;
  const Memory memory(64);
  for (std::size_t i = 0; i < 64; ++i) {
    std::memset(memory.at(i), 5, page);
    memory.at(i)[page / 2] = static_cast<std::byte>(i);  // alike, but not equal
  }
  EqualPages pages;
  pages.add(self(), memory.whole());
  pages.compare();
  const std::vector<std::byte> file(1U << 20U, std::byte{5});
  CHECK(pages.find(file, 1)[0] <= bytes_of(64));
}

TEST_CASE("a process that does not exist, and a share that is none, are errors") {
  CHECK_THROWS_AS(EqualPages(0), std::invalid_argument);
  CHECK_THROWS_AS(EqualPages(1.5), std::invalid_argument);
  EqualPages pages;
  CHECK_THROWS_AS(pages.add(1U << 30U, {}), OsError);
}

}  // namespace onecopy
