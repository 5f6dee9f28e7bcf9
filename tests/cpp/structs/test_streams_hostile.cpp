// Streams that are cut, flipped, or lie: a value or a FormatError, whichever way they are read.
#include <sstream>

#include "dictionary.hpp"
#include "onecopy/base/error.hpp"
#include "precompiled.hpp"

using dictionaries::dictionary;
using onecopy::FormatError;
using onecopy::OwningSpan;
using onecopy::streams::generic_loader;

namespace {

// A stream of unknown length: a pipe.
class Pipe : public std::stringbuf {
 public:
  using std::stringbuf::stringbuf;

 protected:
  pos_type seekoff(off_type, std::ios_base::seekdir, std::ios_base::openmode) override { return off_type{-1}; }
  pos_type seekpos(pos_type, std::ios_base::openmode) override { return off_type{-1}; }
};

template <class T>
void by_stream(T& value, const std::string& wire) {
  std::istringstream in(wire);
  generic_loader(in).visit(value);
}

template <class T>
void by_pipe(T& value, const std::string& wire) {
  Pipe pipe(wire, std::ios::in);
  std::istream in(&pipe);
  generic_loader(in).visit(value);
}

template <class T>
void by_mapping(T& value, const std::string& wire) {
  const auto bytes = std::as_bytes(std::span(wire));
  const auto memory = std::make_shared<std::vector<std::byte>>(bytes.begin(), bytes.end());  // not one byte longer
  generic_loader(*memory, memory, "memory").visit(value);
}

template <class T>
void by_block(T& value, const std::string& wire) {
  std::istringstream in(wire);
  essentials::contiguous_memory_allocator().allocate(value, in);
}

template <class T>
constexpr std::array<void (*)(T&, const std::string&), 4> ways{by_stream<T>, by_pipe<T>, by_mapping<T>, by_block<T>};

template <class T>
void check_refused(const std::string& wire) {
  for (const auto load : ways<T>) {
    T value;
    CHECK_THROWS_AS(load(value, wire), FormatError);
  }
}

// Calls check(value) with the value that each way loads.
template <class T, class Check>
void check_accepted(const std::string& wire, const Check& check) {
  for (const auto load : ways<T>) {
    T value;
    load(value, wire);
    CHECK(check(value));
  }
}

std::string counts(std::initializer_list<std::uint64_t> numbers) {
  std::string wire;
  for (const std::uint64_t number : numbers) wire.append(reinterpret_cast<const char*>(&number), sizeof(number));
  return wire;
}

struct Tree {
  std::vector<Tree> children;
  template <class Visitor>
  void visit(Visitor& visitor) {
    visitor.visit(children);
  }
};

struct Nothing {
  std::string_view not_visited;  // not plain
  template <class Visitor>
  void visit(Visitor& /*visitor*/) {}
};

}  // namespace

TEST_CASE("a stream that is cut at any byte is refused") {
  const auto content = dictionaries::random_content(3, 60);
  const std::string wire = dictionaries::naive_bytes(content);
  for (std::size_t size = 0; size < wire.size(); ++size) {
    for (const auto load : ways<dictionary>) {
      dictionary value(dictionaries::random_content(4, 60));
      CHECK_THROWS_AS(load(value, wire.substr(0, size)), FormatError);
      (void)value.what();  // whatever it is now, it can be read
    }
  }
}

TEST_CASE("10,000 flipped bits: values or errors, and what is accepted can be read and saved again") {
  std::mt19937_64 random(11);
  const std::string wire = dictionaries::naive_bytes(dictionaries::random_content(3, 60));
  unsigned refused = 0;
  for (int i = 0; i < 10'000; ++i) {
    std::string flipped = wire;
    flipped[random() % wire.size()] ^= static_cast<char>(1U << random() % 8);
    try {
      dictionary value;
      ways<dictionary>[static_cast<std::size_t>(i) % 4](value, flipped);
      (void)value.what();
      std::ostringstream out;
      onecopy::streams::generic_saver(out).visit(value);
      CHECK(flipped.starts_with(std::string_view(out.str()).substr(0, 400)));
    } catch (const FormatError&) {
      ++refused;
    }
  }
  CHECK(refused > 100);
  CHECK(refused < 9'900);
}

TEST_CASE("a count that lies is refused before memory is taken for it") {
  for (const std::uint64_t lie : {std::uint64_t{5}, std::uint64_t{1} << 21U, std::uint64_t{1} << 40U,
                                  std::uint64_t{1} << 60U, (std::uint64_t{1} << 61U) + 1, UINT64_MAX}) {
    const std::string wire = counts({lie, 0, 0, 0});
    check_refused<std::vector<std::uint64_t>>(wire);
    check_refused<OwningSpan<std::uint64_t>>(wire);
    check_refused<std::string>(wire.substr(0, 12));
    check_refused<std::vector<std::vector<std::string>>>(wire);
    check_refused<OwningSpan<OwningSpan<double>>>(wire);
    check_refused<std::vector<std::array<std::uint64_t, 100>>>(wire);
  }
}

TEST_CASE("a stream of more than is believed at once is read to its end, and refused where it is cut") {
  std::vector<std::uint32_t> numbers(1'000'000);
  std::iota(numbers.begin(), numbers.end(), 0U);
  std::ostringstream out;
  onecopy::streams::generic_saver(out).visit(numbers);
  check_accepted<OwningSpan<std::uint32_t>>(out.str(),
                                            [&](const auto& value) { return std::ranges::equal(value, numbers); });
  for (const std::size_t size : {9U, 2'000'000U, 4'000'007U})
    check_refused<OwningSpan<std::uint32_t>>(out.str().substr(0, size));
}

TEST_CASE("a file does not choose how deep the program recurses") {
  std::string wire;
  for (int depth = 0; depth < 100'000; ++depth) wire += counts({1});
  check_refused<Tree>(wire + counts({0}));
  check_accepted<Tree>(counts({2, 1, 0, 0}), [](const Tree& value) {
    return value.children.size() == 2 && value.children[0].children.size() == 1;
  });
}

TEST_CASE("elements that take no bytes are not made for ever") {
  check_refused<std::vector<Nothing>>(counts({std::uint64_t{1} << 50U}));
  check_accepted<std::vector<Nothing>>(counts({5}), [](const auto& value) { return value.size() == 5; });
}

TEST_CASE("a bool and the flag of an optional are 0 or 1") {
  check_refused<bool>("\2");
  check_refused<std::optional<std::uint8_t>>("\2\1");
  check_accepted<std::optional<bool>>("\1\1", [](const auto& value) { return value == true; });
  check_accepted<std::optional<bool>>(std::string(1, '\0'), [](const auto& value) { return !value; });
}

TEST_CASE("errors name the stream, the byte, and what was there") {
  std::istringstream in("12345678" + counts({3}) + "123");
  in.ignore(8);
  std::vector<std::uint16_t> value{7};
  CHECK_THROWS_WITH_AS(generic_loader(in, "index.bin").visit(value),
                       "index.bin: byte 16: expected 6 bytes, but 3 are left", FormatError);
  CHECK(value == std::vector<std::uint16_t>{7});  // as it was
  const std::string lie = counts({1000});
  CHECK_THROWS_WITH_AS(generic_loader(std::as_bytes(std::span(lie)), nullptr, "mapped").visit(value),
                       "mapped: byte 8: 1000 elements of 2 bytes, but 0 bytes are left", FormatError);
}

namespace {

struct Switch {
  std::int32_t number;
  bool is_on;
  std::array<bool, 2> more;
};

struct Room {
  std::uint8_t floor;
  Switch light;
};

}  // namespace

TEST_CASE("a bool inside of plain structs is 0 or 1") {
  std::string one(sizeof(Room), '\0');
  const std::string many = counts({1});
  for (const std::size_t at : {offsetof(Room, light) + 4, offsetof(Room, light) + 6}) {
    for (const char value : {'\1', '\2', 'z'}) {
      one[at] = value;
      for (const auto load : ways<Room>) {
        Room room{};
        if (value == '\1')
          load(room, one);
        else
          CHECK_THROWS_AS(load(room, one), FormatError);
        CHECK((room.light.is_on || room.light.more[1]) == (value == '\1'));
      }
    }
    one[at] = 0;
  }
  one[offsetof(Room, light) + 4] = 2;
  check_refused<std::vector<Room>>(many + one);
  check_refused<OwningSpan<Room>>(many + one);
  check_refused<std::optional<Room>>('\1' + one);
}
