#include <list>

#include "onecopy/structs/owning_span.hpp"
#include "onecopy/structs/traits.hpp"
#include "precompiled.hpp"

using onecopy::OwningSpan;

namespace {

using Numbers = std::vector<std::uint64_t>;
using Words = OwningSpan<std::uint64_t>;

struct Sub {  // not plain: owns memory
  std::string name;
  Words words;
};
struct Pod {
  std::uint32_t a;
  float b;
};

static_assert(sizeof(Words) == 24, "three words");
static_assert(onecopy::is_pod_v<Pod> && !onecopy::is_pod_v<Sub>);
static_assert(onecopy::is_owning_span_v<Words> && !onecopy::is_owning_span_v<std::vector<int>>);
static_assert(!std::is_convertible_v<std::span<const int>, OwningSpan<int>>);
static_assert(!std::is_constructible_v<OwningSpan<int>, std::list<int>>);
static_assert(!std::is_convertible_v<std::vector<int>&, OwningSpan<int>>, "a copy is visible");
static_assert(std::is_constructible_v<OwningSpan<int>, std::vector<int>&>);
static_assert(std::is_convertible_v<std::vector<int>, OwningSpan<int>>);

}  // namespace

TEST_CASE("any contiguous range that owns its elements can be moved in, and stays where it is") {
  Numbers words{1, 2, 3};
  const auto* before = words.data();
  Words span = std::move(words);
  CHECK(span.data() == before);
  CHECK(span.size() == 3);
  CHECK(span.owns());
  CHECK(span.back() == 3);
  CHECK(span.at(1) == 2);
  CHECK_THROWS_AS((void)span.at(3), std::out_of_range);
  const OwningSpan<char> text = std::string("a string that is longer than the small ones");
  CHECK(std::string(text.begin(), text.end()) == "a string that is longer than the small ones");
  const OwningSpan<int> array = std::array{1, 2, 3};
  CHECK(array[2] == 3);
  std::vector<Sub> subs(3);
  subs[1] = {"one", Numbers{9}};
  const OwningSpan<Sub> not_plain = std::move(subs);
  const auto copy = not_plain;
  CHECK(copy[1].name == "one");
  CHECK(copy[1].words[0] == 9);
}

TEST_CASE("an OwningSpan keeps its owner alive, and its parts do too; one that borrows counts nothing") {
  auto owner = std::make_shared<const Numbers>(Numbers{5, 6, 7});
  const std::weak_ptr<const Numbers> watch = owner;
  const Words borrowed(owner->data(), owner->size());
  const Words copy = borrowed;
  CHECK_FALSE(copy.owns());
  CHECK(copy.data() == owner->data());
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

TEST_CASE("OwningSpans compare by elements, swap, iterate both ways, and have parts inside") {
  Words a = Numbers{1, 2};
  Words b = Numbers{1, 3};
  CHECK(a != b);
  CHECK(a < b);
  CHECK(a == Words(Numbers{1, 2}));
  swap(a, b);
  CHECK(a.back() == 3);
  CHECK(Numbers(a.rbegin(), a.rend()) == Numbers{3, 1});
  const std::span<const std::uint64_t> look = a;
  CHECK(look.data() == a.data());
  CHECK(a.subspan(2, 0).empty());
  for (const auto& [first, count] : {std::pair<std::size_t, std::size_t>(1, 2), {3, 0}, {1, SIZE_MAX}})
    CHECK_THROWS_AS(a.subspan(first, count), std::out_of_range);
}

TEST_CASE("what was moved from is empty, and can be read, saved and assigned to") {
  Words first = Numbers{1, 2, 3};
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
