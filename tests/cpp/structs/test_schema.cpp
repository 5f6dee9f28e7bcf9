// What a type is in a file: names and types, at compile time and at run time; and what visit() may hand out.
#include <complex>

#include "onecopy/base/error.hpp"
#include "onecopy/structs/structs.hpp"
#include "precompiled.hpp"
#include "scratch_folder.hpp"

using onecopy::FormatError;
using onecopy::OwningSpan;

namespace {

enum class Letter : std::int16_t { a };

struct Node {
  std::uint32_t key;
  std::uint32_t next;
};

struct Sub {
  OwningSpan<std::uint64_t> words;
  bool ok = false;
};

struct Index {
  std::uint64_t seed;
  Letter letter;
  float score;
  std::complex<float> wave;
  std::array<std::array<double, 3>, 2> matrix;
  int plain_array[4];
  OwningSpan<Node> nodes;
  std::array<Node, 2> two;
  Node one;
  std::string title;
  std::optional<std::uint8_t> limit;
  std::vector<std::string> names;
  OwningSpan<Sub> subs;
  std::array<Sub, 2> pair;
  std::optional<Sub> maybe;
  std::pair<char, std::byte> labelled;
};

constexpr const char* expected =
    "seed             U64\n"
    "letter           I16\n"
    "score            F32\n"
    "wave             C64\n"
    "matrix           F64[2][3]\n"
    "plain_array      I32[4]\n"
    "nodes            {key:U32,next:U32}[]\n"
    "two              {key:U32,next:U32}[2]\n"
    "one.key          U32\n"
    "one.next         U32\n"
    "title            text\n"
    "limit            U8?\n"
    "names[]          text\n"
    "subs[].words     U64[]\n"
    "subs[].ok        BOOL\n"
    "pair[2].words    U64[]\n"
    "pair[2].ok       BOOL\n"
    "maybe?.words     U64[]\n"
    "maybe?.ok        BOOL\n"
    "labelled.first   U8\n"
    "labelled.second  U8\n";

struct Padded {
  std::uint8_t small;
  std::uint32_t large;
  std::uint16_t tail;
};

// What visit() should not do.
template <int kind>
class Wrong {
 public:
  template <class Visitor>
  void visit(Visitor& visitor) {
    if constexpr (kind == 0) {
      std::uint64_t local = 0;
      visitor.visit(local);
    } else if constexpr (kind == 1) {
      visitor.visit(*elsewhere_);
    } else if constexpr (kind == 2) {
      visitor.visit(number_, "a.b");
    } else if constexpr (kind == 3) {
      visitor.visit(number_, "x");
      visitor.visit(other_, "x");
    } else {
      visitor.visit(number_);
      if (number_ == 1) visitor.visit(other_);
    }
  }

  std::uint64_t number_ = 0;
  std::uint64_t other_ = 0;

 private:
  std::shared_ptr<std::uint64_t> elsewhere_ = std::make_shared<std::uint64_t>(1);
};

template <int kind>
void check_refused(const char* what) {
  CHECK_THROWS_WITH_AS((void)onecopy::schema<Wrong<kind>>(), doctest::Contains(what), FormatError);
}

struct Base {
  std::uint32_t id = 4;
  template <class Visitor>
  void visit(Visitor& visitor) const {
    visitor.visit(id, "id");
  }
};

struct Derived : Base {
  std::vector<std::uint64_t> words;
  template <class Visitor>
  void visit(Visitor& visitor) const {
    Base::visit(visitor);
    visitor.visit(words);
  }
};

struct Wide {
  std::uint8_t a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z;
};

}  // namespace

template <>
inline constexpr bool onecopy::allow_padding<Padded> = true;

TEST_CASE("a schema names every leaf, also of a base class that is visited") {
  CHECK("\n" + to_string(onecopy::schema<Index>()) == std::string("\n") + expected);
  CHECK(to_string(onecopy::schema<Derived>()) == "id  U32\n1   U64[]\n");
}

// A change of this number is a change of the format: files that were written before do not open any more.
static_assert(onecopy::schema_hash<Node>() == 0xda028516e2a01ac3U);

static_assert(onecopy::schema_hash<Node>() != onecopy::schema_hash<Sub>());

TEST_CASE_TEMPLATE("the hash at compile time is the one at run time", T, Index, Node, std::vector<std::vector<int>>,
                   OwningSpan<Sub>, double) {
  CHECK(onecopy::schema_hash<T>() == onecopy::schema<T>().hash());
}

// Fields are counted and named, twenty-six of them too.
static_assert(onecopy::structs::count_fields<Wide>() == 26);
static_assert(onecopy::structs::field_name<Wide, 25> == "z");
static_assert(onecopy::structs::field_name<Index, 5> == "plain_array");
static_assert(onecopy::structs::field_name<Index, 12> == "subs");

TEST_CASE_FIXTURE(onecopy::InFolder, "visit() may list members only, once, under names that paths can have") {
  check_refused<0>("'0', which is not a member");
  check_refused<1>("'0', which is not a member");
  check_refused<2>("'a.b'");
  check_refused<3>("'x' twice");
  // And the same ones for every element of a sequence.
  std::vector<Wrong<4>> elements(3);
  elements[2].number_ = 1;
  CHECK_THROWS_WITH_AS(onecopy::save(folder / "x", elements), doctest::Contains("'value[]'"), FormatError);
  CHECK(folder.file_count() == 0);
}

TEST_CASE_FIXTURE(onecopy::InFolder, "allowed padding is written as zeros") {
  std::vector<Padded> nodes(100);
  std::memset(nodes.data(), 0xAA, nodes.size() * sizeof(Padded));
  for (auto& node : nodes) node = {1, 2, 3};
  std::memset(reinterpret_cast<std::byte*>(&nodes[7]) + 1, 0xBB, 3);
  onecopy::save(folder / "x", nodes);
  const auto file = onecopy::open<OwningSpan<Padded>>(folder / "x");
  const auto* bytes = reinterpret_cast<const unsigned char*>(&(*file)[7]);
  CHECK(std::vector<int>(bytes, bytes + sizeof(Padded)) == std::vector<int>{1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0});
}

TEST_CASE_FIXTURE(onecopy::InFolder, "an alignas on a member, which a schema could not tell, is refused") {
  struct Moved {
    std::uint32_t a;
    alignas(16) std::uint32_t b;
    std::array<std::uint32_t, 3> rest;
    std::array<std::uint32_t, 3> filler;
  };
  if constexpr (onecopy::structs::used_bytes<Moved>() == sizeof(Moved))
    CHECK_THROWS_AS(onecopy::save(folder / "x", std::vector<Moved>(1)), FormatError);
}
