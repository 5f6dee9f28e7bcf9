#include <deque>

#include "precompiled.hpp"
#include "scratch/write_queue.hpp"

namespace onecopy {
namespace {

constexpr std::uint64_t cap = std::uint64_t{16} << 20U;
constexpr std::uint64_t page = 4096;

}  // namespace

TEST_CASE("what is written in order begins to leave at half of the cap, and is dropped in that order at the cap") {
  WriteQueue queue(cap);
  const std::uint64_t part = queue.part_size();
  std::deque<std::uint64_t> begun;
  std::uint64_t dropped = 0;
  for (std::uint64_t number = 0; number < 100; ++number) {
    queue.touch({number * part, part});
    while (const auto next = queue.next_to_begin()) begun.push_back(*next);
    while (const auto next = queue.next_to_drop()) {
      REQUIRE(!begun.empty());
      CHECK(*next == begun.front());
      CHECK(*next == dropped++);
      begun.pop_front();
    }
    CHECK(queue.held() <= cap);
    CHECK((number + 1 - dropped - begun.size()) * part <= cap / 2 + part);
  }
  CHECK(dropped == 100 - cap / part);
}

TEST_CASE("a queue agrees with a naive list, whatever is written and released in which order") {
  std::mt19937_64 random(7);
  WriteQueue queue(cap);
  struct Part {
    std::uint64_t number;
    std::uint64_t bytes;
  };
  std::deque<Part> naive;  // the oldest first
  const auto take = [&](std::uint64_t number) {
    const auto known = std::ranges::find(naive, number, &Part::number);
    if (known == naive.end()) return std::uint64_t{0};
    const std::uint64_t bytes = known->bytes;
    naive.erase(known);
    return bytes;
  };
  const auto held = [&] {
    std::uint64_t sum = 0;
    for (const auto& one : naive) sum += one.bytes;
    return sum;
  };
  for (int i = 0; i < 20'000; ++i) {
    const std::uint64_t number = random() % 40;
    const std::uint64_t bytes = (1 + random() % (queue.part_size() / page)) * page;
    naive.push_back({number, std::min(take(number) + bytes, queue.part_size())});
    queue.touch({number * queue.part_size(), bytes});
    if (i % 5 == 0) {
      queue.forget((number + 1) % 40);
      (void)take((number + 1) % 40);
    }
    const bool begins = i % 3 != 0;
    while (begins && queue.next_to_begin()) {
    }
    while (const auto dropped = queue.next_to_drop()) {
      CHECK(held() > cap);
      REQUIRE(*dropped == naive.front().number);
      naive.pop_front();
    }
    REQUIRE(queue.held() == held());
    REQUIRE(queue.held() <= cap);
    REQUIRE(queue.holds(number));
  }
  for (const std::uint64_t size : {std::uint64_t{1} << 20U, std::uint64_t{3'000'000}, std::uint64_t{1} << 40U})
    CHECK(WriteQueue(size).part_size() * 8 <= size);
}

}  // namespace onecopy
