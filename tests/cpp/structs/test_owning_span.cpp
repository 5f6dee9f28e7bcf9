#include <list>

#include "onecopy/structs/owning_span.hpp"
#include "onecopy/structs/traits.hpp"
#include "precompiled.hpp"

using onecopy::OwningSpan;

namespace {

using Words = OwningSpan<std::uint64_t>;

struct Sub {  // not plain: owns memory
  std::string name;
  Words words;
};

}  // namespace

TEST_CASE("an OwningSpan of a moved vector has the vector's own memory") {
  std::vector<std::uint64_t> words{1, 2, 3};
  const auto* before = words.data();
  Words span = std::move(words);
  CHECK(span.data() == before);
  CHECK(span.size() == 3);
  CHECK(span.owns());
  CHECK(span.back() == 3);
  CHECK(span.at(1) == 2);
  CHECK_THROWS_AS((void)span.at(3), std::out_of_range);
}

TEST_CASE("any contiguous range that owns its elements can be moved in, and a look cannot") {
  const OwningSpan<char> text = std::string("a string that is longer than the small ones");
  CHECK(std::string(text.begin(), text.end()) == "a string that is longer than the small ones");
  const OwningSpan<int> array = std::array{1, 2, 3};
  CHECK(array[2] == 3);
  static_assert(!std::is_convertible_v<std::span<const int>, OwningSpan<int>>);
  static_assert(!std::is_constructible_v<OwningSpan<int>, std::list<int>>);
  static_assert(!std::is_convertible_v<std::vector<int>&, OwningSpan<int>>, "a copy is visible");
  static_assert(std::is_constructible_v<OwningSpan<int>, std::vector<int>&>);
  static_assert(std::is_convertible_v<std::vector<int>, OwningSpan<int>>);
}

TEST_CASE("an OwningSpan keeps its owner alive, and its parts do too") {
  auto owner = std::make_shared<const std::vector<std::uint64_t>>(std::vector<std::uint64_t>{5, 6, 7});
  const std::weak_ptr<const std::vector<std::uint64_t>> watch = owner;
  Words span(owner->data(), owner->size(), owner);
  owner.reset();
  Words part = span.subspan(1, 2);
  span.clear();
  CHECK(span.empty());
  CHECK(span.data() == nullptr);
  CHECK_FALSE(watch.expired());
  CHECK(part[1] == 7);
  part.clear();
  CHECK(watch.expired());
}

TEST_CASE("a borrowing OwningSpan counts nothing") {
  const std::array<std::uint64_t, 2> words{1, 2};
  const Words span(words.data(), words.size());
  const Words copy = span;
  CHECK_FALSE(span.owns());
  CHECK_FALSE(copy.owns());
  CHECK(copy.data() == words.data());
}

TEST_CASE("subspan stays inside") {
  const Words span = std::vector<std::uint64_t>{1, 2, 3};
  CHECK(span.subspan(3, 0).empty());
  CHECK_THROWS_AS(span.subspan(1, 3), std::out_of_range);
  CHECK_THROWS_AS(span.subspan(4, 0), std::out_of_range);
  CHECK_THROWS_AS(span.subspan(2, SIZE_MAX), std::out_of_range);
}

TEST_CASE("OwningSpans compare by elements, swap, and iterate both ways") {
  Words a = std::vector<std::uint64_t>{1, 2};
  Words b = std::vector<std::uint64_t>{1, 3};
  CHECK(a != b);
  CHECK(a < b);
  CHECK(a == Words(std::vector<std::uint64_t>{1, 2}));
  swap(a, b);
  CHECK(a.back() == 3);
  CHECK(std::vector<std::uint64_t>(a.rbegin(), a.rend()) == std::vector<std::uint64_t>{3, 1});
  const std::span<const std::uint64_t> look = a;
  CHECK(look.data() == a.data());
}

TEST_CASE("what was moved from is empty, and can be read, saved and assigned to") {
  Words first = std::vector<std::uint64_t>{1, 2, 3};
  Words second = std::move(first);
  CHECK(first.empty());  // NOLINT(bugprone-use-after-move): what is tested
  CHECK(first.begin() == first.end());
  CHECK(first.span().empty());
  first = std::move(second);
  CHECK(second.empty());  // NOLINT(bugprone-use-after-move)
  CHECK(first.size() == 3);
  CHECK(std::exchange(first, {}).size() == 3);
  CHECK(first.empty());
}

TEST_CASE("elements need not be plain") {
  std::vector<Sub> subs(3);
  subs[1].name = "one";
  subs[1].words = std::vector<std::uint64_t>{9};
  const OwningSpan<Sub> span = std::move(subs);
  const auto copy = span;
  CHECK(copy[1].name == "one");
  CHECK(copy[1].words[0] == 9);
}

TEST_CASE("an OwningSpan is three words") { CHECK(sizeof(Words) == 24); }

TEST_CASE("the traits tell PODs and OwningSpans") {
  struct Pod {
    std::uint32_t a;
    float b;
  };
  static_assert(onecopy::is_pod_v<Pod>);
  static_assert(!onecopy::is_pod_v<Sub>);
  static_assert(onecopy::is_owning_span_v<Words>);
  static_assert(!onecopy::is_owning_span_v<std::vector<int>>);
}
