// What a program sees when the file is not what it expects. Messages are compared whole: they are the interface.
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "doctest/doctest.h"
#include "onecopy/arrays/array_writer.hpp"
#include "onecopy/base/error.hpp"
#include "onecopy/structs/structs.hpp"
#include "scratch_folder.hpp"

using onecopy::FormatError;
using onecopy::open;
using onecopy::OwningSpan;
using onecopy::save;
using onecopy::testing::ScratchFolder;

namespace {

struct Sub {
  OwningSpan<std::uint64_t> words;
  std::uint32_t id = 5;
};

namespace v1 {
struct Rank {
  OwningSpan<std::uint16_t> blocks;
};
struct Index {
  std::uint64_t seed = 1;
  Rank rank;
  OwningSpan<Sub> subs;
};
}  // namespace v1

namespace other_type {
struct Rank {
  OwningSpan<std::uint64_t> blocks;
};
struct Index {
  std::uint64_t seed = 1;
  Rank rank;
  OwningSpan<Sub> subs;
};
}  // namespace other_type

namespace renamed {
struct Rank {
  OwningSpan<std::uint16_t> superblocks;
};
struct Index {
  std::uint64_t seed = 1;
  Rank rank;
  OwningSpan<Sub> subs;
};
}  // namespace renamed

namespace shorter {
struct Index {
  std::uint64_t seed = 1;
  OwningSpan<Sub> subs;
};
}  // namespace shorter

namespace v3 {
struct NewSub {
  OwningSpan<std::uint64_t> words;
  std::uint32_t id = 5;
  std::optional<std::uint8_t> colour = 4;
};
struct Index {
  std::uint64_t seed = 1;
  v1::Rank rank;
  OwningSpan<NewSub> subs;
  double threshold = 0.25;
  std::vector<std::string> notes = {"none"};
  OwningSpan<NewSub> more;
};
}  // namespace v3

struct Key {
  std::uint32_t hash;
  std::uint32_t slot;
};
struct Keys {
  OwningSpan<Key> keys;
};
struct OtherKey {
  std::uint32_t hash;
  std::int32_t slot;
};
struct OtherKeys {
  OwningSpan<OtherKey> keys;
};

v1::Index small() {
  v1::Index index;
  index.rank.blocks = std::vector<std::uint16_t>(9104);
  std::vector<Sub> subs(3);
  subs[1].words = std::vector<std::uint64_t>{1, 2};
  index.subs = std::move(subs);
  return index;
}

std::string message_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const FormatError& error) {
    return error.what();
  }
  return "no FormatError";
}

template <class T>
std::string refusal(const std::filesystem::path& path) {
  return message_of([&] { static_cast<void>(open<T>(path)); });
}

}  // namespace

template <>
inline constexpr onecopy::Versions onecopy::versions_of<v3::Index> = {.current = 3, .oldest = 0};

TEST_CASE("a schema that differs is an error that names the first field and both sides") {
  const ScratchFolder folder;
  const auto path = folder / "index.oc";
  save(path, small());
  const std::string where = path.string() + ": ";
  CHECK(refusal<other_type::Index>(path) == where + "'rank.blocks': the file has U16[9104], the program expects U64[]");
  CHECK(refusal<renamed::Index>(path) ==
        where +
            "'rank.superblocks': the file has no such field (it has 'rank.blocks': U16[], which the program does not), "
            "the program expects U16[]");
  CHECK(refusal<shorter::Index>(path) == where + "'rank.blocks': the file has U16[], the program has no such field");
  CHECK(refusal<std::vector<double>>(path) ==
        where +
            "'value': the file has no such field (it has 'seed': U64, which the program does not), "
            "the program expects F64[]");
  save(path, Keys{std::vector<Key>{{1, 2}, {3, 4}}});
  CHECK(refusal<OtherKeys>(path) == where +
                                        "'keys': the file has {hash:U32,slot:U32}[2], the program expects "
                                        "{hash:U32,slot:I32}[]");
  CHECK(message_of([&] { static_cast<void>(open<&v1::Index::seed>(path)); }) ==
        where +
            "'seed': the file has no such field (it has 'keys': {hash:U32,slot:U32}[], which the program does "
            "not), the program expects U64");
}

TEST_CASE("files of other kinds are distinguished") {
  const ScratchFolder folder;
  const auto path = folder / "arrays";
  const std::vector<onecopy::NamedArray> arrays{{{"seed", onecopy::DType::u8, {0}}, {}}};
  save(path, arrays);
  CHECK(refusal<v1::Index>(path) ==
        path.string() + ": the file is of kind 'arrays', not a structure that onecopy::save(path, value) wrote");
  std::ofstream(path, std::ios::binary) << "not a safetensors file at all";
  CHECK(refusal<v1::Index>(path).find("expected a file of arrays, found text") != std::string::npos);
  std::ofstream(path, std::ios::binary).close();
  CHECK_THROWS_AS(open<v1::Index>(path), onecopy::OsError);
  CHECK_THROWS_AS(open<v1::Index>(folder / "missing"), onecopy::OsError);
  CHECK_THROWS_AS(open<v1::Index>(folder.path()), onecopy::OsError);
}

TEST_CASE("fields that an older file lacks keep their initialisers, and the report names them") {
  const ScratchFolder folder;
  const auto path = folder / "index.oc";
  save(path, small());
  const auto file = open<v3::Index>(path);
  CHECK(file.report().version == 0);
  CHECK(file.report().defaulted == std::vector<std::string>{"subs[].colour", "threshold", "notes", "more"});
  CHECK(file->threshold == 0.25);
  CHECK(file->notes == std::vector<std::string>{"none"});
  CHECK(file->subs.size() == 3);
  CHECK(file->subs[1].words[1] == 2);
  CHECK(file->subs[2].colour == 4);
  CHECK(file->more.empty());
  CHECK(to_string(file.report()).find("'threshold' is not in the file and keeps its initialiser") != std::string::npos);

  v3::Index now;
  now.threshold = 1;
  save(path, now);
  const auto newer = open<v3::Index>(path);
  CHECK(newer.report().version == 3);
  CHECK(newer.report().defaulted.empty());
  CHECK(refusal<v1::Index>(path) ==
        path.string() + ": the file has version 3 of this structure, the program expects 0");
}

TEST_CASE("a field may be missing only from an older file") {
  const ScratchFolder folder;
  const auto path = folder / "index.oc";
  save(path, shorter::Index{});
  CHECK(refusal<v1::Index>(path) ==
        path.string() + ": 'rank.blocks': the file has no such field, the program expects U16[]");
}

TEST_CASE("an array that does not agree with the schema is an error before anything is made") {
  const ScratchFolder folder;
  const auto path = folder / "index.oc";
  const auto words = std::as_bytes(std::span<const char>("0123456789abcdef"));
  const auto refuse = [&](const std::vector<onecopy::NamedArray>& arrays, const std::string& fields) {
    onecopy::LayoutOptions options;
    options.kind = onecopy::Kind::structure;
    options.schema = "{\"version\":0,\"fields\":{" + fields + "}}";
    save(path, arrays, options);
    return refusal<std::vector<Sub>>(path).substr(path.string().size() + 2);
  };
  const std::string fields = R"("value[].words":"U64[]","value[].id":"U32")";
  const auto u64 = [&](const std::string& name, std::vector<std::uint64_t> shape, std::size_t bytes) {
    return onecopy::NamedArray{{name, onecopy::DType::u64, std::move(shape)}, words.first(bytes)};
  };
  CHECK(refuse({}, fields) ==
        "'value[]': the file has fields in it ('value[].words': U64[]), the program expects a sequence");
  CHECK(refuse({u64("value.count", {2}, 16)}, fields) ==
        "'value[]': the file has U64[2] under 'value.count', the program expects U64 for a count");
  // 0x3736353433323130 elements: more than any file holds.
  CHECK(refuse({u64("value.count", {}, 8), u64("value[].words", {2}, 16)}, fields) ==
        "'value[].words.offsets': the file has no such array");
  CHECK(refuse({u64("value.count", {}, 8), u64("value[].words", {2}, 16), u64("value[].words.offsets", {2}, 16)},
               fields) ==
        "'value[].words': the file has U64[2] under 'value[].words.offsets', the program expects "
        "U64[3978425819141910833] for offsets");
  CHECK(refuse({}, R"("x":"U64","x":"U32")") == "the schema names 'x' twice");
  CHECK(refuse({}, R"("x":5)").find("expected") != std::string::npos);
}

// Under the sanitizers, an offset that is read twice from the file is an overflow here.
TEST_CASE("a file that is written to while it is opened causes no read outside it") {
  const ScratchFolder folder;
  const auto path = folder / "value.oc";
  using Jagged = std::vector<OwningSpan<std::uint64_t>>;
  save(path, std::vector<std::vector<std::uint64_t>>(1000, std::vector<std::uint64_t>(3, 7)));
  const auto file = onecopy::ArrayFile::open(path);
  const auto& entry = file.entry("value[].offsets");
  const std::uint64_t last = entry.offset + entry.length - sizeof(std::uint64_t);
  const int fd = ::open(path.c_str(), O_RDWR);
  std::atomic<bool> done = false;
  std::thread writer([&] {
    for (std::uint64_t i = 0; !done; ++i) {
      const std::uint64_t value = i % 2 == 0 ? 3000 : std::uint64_t{1} << 40U;
      (void)!::pwrite(fd, &value, sizeof value, static_cast<off_t>(last));
    }
  });
  int opened = 0;
  int refused = 0;
  for (int i = 0; i < 3000; ++i) {
    try {
      const auto value = open<Jagged>(path);
      for (const auto& one : *value) CHECK(one.size() == 3);
      ++opened;
    } catch (const FormatError&) {
      ++refused;
    }
  }
  done = true;
  writer.join();
  ::close(fd);
  CHECK(opened + refused == 3000);
  CHECK(refused > 0);
}

TEST_CASE("offsets that fall, and sequences of two where one is the most, are errors") {
  const ScratchFolder folder;
  const auto path = folder / "value.oc";
  const auto save_offsets = [&](const std::vector<std::uint64_t>& offsets, const std::string& type) {
    const std::uint64_t count = offsets.size() - 1;
    const std::vector<std::uint8_t> items(offsets.back());
    onecopy::LayoutOptions options;
    options.kind = onecopy::Kind::structure;
    options.schema = R"({"version":0,"fields":{"value[]":")" + type + "\"}}";
    const std::vector<onecopy::NamedArray> arrays{
        {{"value.count", onecopy::DType::u64, {}}, std::as_bytes(std::span(&count, 1))},
        {{"value[].offsets", onecopy::DType::u64, {offsets.size()}}, std::as_bytes(std::span(offsets))},
        {{"value[]", onecopy::DType::u8, {items.size()}}, std::as_bytes(std::span(items))}};
    save(path, arrays, options);
  };
  using Jagged = std::vector<std::vector<std::uint8_t>>;
  using Maybe = std::vector<std::optional<std::uint8_t>>;
  save_offsets({0, 2, 5}, "U8[]");
  const auto jagged = open<Jagged>(path);
  CHECK(jagged->at(1).size() == 3);
  for (const auto& offsets : {std::vector<std::uint64_t>{0, 6, 5}, {1, 2, 5}, {0, UINT64_MAX, 5}}) {
    save_offsets(offsets, "U8[]");
    CHECK(refusal<Jagged>(path) == path.string() + ": 'value[].offsets': the offsets do not rise from 0");
    CHECK(refusal<OwningSpan<OwningSpan<std::uint8_t>>>(path) == refusal<Jagged>(path));
  }
  save_offsets({0, 0, 2}, "U8?");
  CHECK(refusal<Maybe>(path) ==
        path.string() + ": 'value[]': more than one value where the program has a std::optional");
}

TEST_CASE("an array that does not begin where its type may is an error, and not a misaligned read") {
  const ScratchFolder folder;
  const auto path = folder / "value.oc";
  // By hand, because our writer aligns everything: 1 byte of something else, then two numbers of 8 bytes.
  const std::string ours = R"({\"version\":1,\"kind\":\"struct\",\"schema\":{\"fields\":{\"value\":\"U64[]\"}}})";
  const std::string header = R"({"__metadata__":{"onecopy":")" + ours +
                             R"("},"#0":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                             R"("value":{"dtype":"U64","shape":[2],"data_offsets":[1,17]}} )";
  std::string text(8, '\0');
  text[0] = static_cast<char>(header.size());
  REQUIRE(header.size() < 256);
  text += header + std::string(17, 'x');
  std::ofstream(path, std::ios::binary) << text;
  const std::size_t at = 8 + header.size() + 1;
  REQUIRE(at % 8 != 0);
  CHECK(refusal<OwningSpan<std::uint64_t>>(path) ==
        path.string() + ": 'value' begins at byte " + std::to_string(at) +
            " of the file, which is not a multiple of 8: it cannot be mapped in place");
}

TEST_CASE("a bool is 0 or 1") {
  const ScratchFolder folder;
  const auto path = folder / "value.oc";
  const std::byte two{2};
  onecopy::LayoutOptions options;
  options.kind = onecopy::Kind::structure;
  options.schema = R"({"version":0,"fields":{"value":"BOOL"}})";
  const std::vector<onecopy::NamedArray> arrays{{{"value", onecopy::DType::boolean, {}}, {&two, 1}}};
  save(path, arrays, options);
  CHECK(refusal<bool>(path) == path.string() + ": 'value': a bool that is neither 0 nor 1");
}
