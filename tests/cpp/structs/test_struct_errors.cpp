// What a program sees when the file is not what it expects: the path, the field, and both sides.
#include <fcntl.h>
#include <unistd.h>

#include "onecopy/arrays/array_writer.hpp"
#include "onecopy/base/error.hpp"
#include "onecopy/structs/structs.hpp"
#include "precompiled.hpp"
#include "scratch_folder.hpp"

using onecopy::FormatError;
using onecopy::open;
using onecopy::OwningSpan;
using onecopy::save;

namespace {

struct Sub {
  OwningSpan<std::uint64_t> words;
  std::uint32_t id = 5;
};

struct Rank {
  OwningSpan<std::uint16_t> blocks;
};
struct WideRank {
  OwningSpan<std::uint64_t> blocks;
};
struct RenamedRank {
  OwningSpan<std::uint16_t> superblocks;
};

template <class AnyRank>
struct IndexOf {
  std::uint64_t seed = 1;
  AnyRank rank;
  OwningSpan<Sub> subs;
};
using Index = IndexOf<Rank>;

struct ShortIndex {
  std::uint64_t seed = 1;
  OwningSpan<Sub> subs;
};

struct NewSub {
  OwningSpan<std::uint64_t> words;
  std::uint32_t id = 5;
  std::optional<std::uint8_t> colour = 4;
};
struct NewIndex {
  std::uint64_t seed = 1;
  Rank rank;
  OwningSpan<NewSub> subs;
  double threshold = 0.25;
  std::vector<std::string> notes = {"none"};
  OwningSpan<NewSub> more;
};

template <class Slot>
struct Key {
  std::uint32_t hash;
  Slot slot;
};

Index small() {
  return {.rank = {std::vector<std::uint16_t>(9104)},
          .subs = std::vector<Sub>{{}, {.words = std::vector<std::uint64_t>{1, 2}}, {}}};
}

// What opening a file as T says after the path; "accepted".
template <class T>
std::string refusal(const std::filesystem::path& path) {
  try {
    (void)open<T>(path);
  } catch (const FormatError& error) {
    const std::string text = error.what();
    REQUIRE(text.starts_with(path.string() + ": "));
    return text.substr(path.string().size() + 2);
  }
  return "accepted";
}

// Whether a text has these words, in this order.
bool has(const std::string& text, std::initializer_list<std::string_view> words) {
  CAPTURE(text);
  std::size_t at = 0;
  for (const auto word : words) {
    at = text.find(word, at);
    if (at == std::string::npos) return false;
    at += word.size();
  }
  return true;
}

// Writes a file of a structure whose schema and arrays need not agree.
void save_parts(const std::filesystem::path& path, const std::string& fields,
                const std::vector<onecopy::NamedArray>& arrays) {
  onecopy::LayoutOptions options;
  options.kind = onecopy::Kind::structure;
  options.schema = R"({"version":0,"fields":{)" + fields + "}}";
  save(path, arrays, options);
}

}  // namespace

template <>
inline constexpr onecopy::Versions onecopy::versions_of<NewIndex> = {.current = 3, .oldest = 0};
template <>
inline constexpr onecopy::Versions onecopy::versions_of<Rank> = {.current = 2, .oldest = 1};

TEST_CASE_FIXTURE(onecopy::AtPath, "a schema that differs is an error that names the first field and both sides") {
  save(path, small());
  CHECK(has(refusal<IndexOf<WideRank>>(path), {"'rank.blocks'", "file has U16[9104]", "program expects U64[]"}));
  CHECK(has(refusal<IndexOf<RenamedRank>>(path), {"'rank.superblocks'", "no such field", "'rank.blocks': U16[]"}));
  CHECK(has(refusal<ShortIndex>(path), {"'rank.blocks'", "file has U16[]", "no such field"}));
  CHECK(has(refusal<std::vector<double>>(path), {"'value'", "no such field", "'seed': U64", "program expects F64[]"}));
  save(path, std::vector<Key<std::uint32_t>>{{1, 2}, {3, 4}});
  CHECK(has(refusal<std::vector<Key<std::int32_t>>>(path), {"'value'", "slot:U32}[2]", "{hash:U32,slot:I32}[]"}));
  CHECK_THROWS_WITH_AS((void)open<&Index::seed>(path), doctest::Contains("'seed'"), FormatError);
  save(path, ShortIndex{});  // of the same version: no field may be missing
  CHECK(has(refusal<Index>(path), {"'rank.blocks'", "no such field", "program expects U16[]"}));
  save(path, std::vector<onecopy::NamedArray>{{{"seed", onecopy::DType::u8, {0}}, {}}});
  CHECK(has(refusal<Index>(path), {"kind 'arrays'"}));
  std::ofstream(path, std::ios::binary) << "not a safetensors file at all";
  CHECK(has(refusal<Index>(path), {"found text"}));
  std::ofstream(path, std::ios::binary).close();
  for (const auto& none : {path, folder / "missing", folder.path()})
    CHECK_THROWS_AS(open<Index>(none), onecopy::OsError);
}

TEST_CASE_FIXTURE(onecopy::AtPath,
                  "fields that an older file lacks keep their initialisers, and the report names them") {
  save(path, small());
  const auto file = open<NewIndex>(path);
  CHECK(file.report().version == 0);
  CHECK(file.report().defaulted == std::vector<std::string>{"subs[].colour", "threshold", "notes", "more"});
  CHECK(file->threshold == 0.25);
  CHECK(file->notes == std::vector<std::string>{"none"});
  CHECK(file->subs.size() == 3);
  CHECK(file->subs[1].words[1] == 2);
  CHECK(file->subs[2].colour == 4);
  CHECK(file->more.empty());
  CHECK(has(to_string(file.report()), {"'threshold'", "keeps its initialiser"}));

  NewIndex now;
  now.threshold = 1;
  save(path, now);
  const auto newer = open<NewIndex>(path);
  CHECK(newer.report().version == 3);
  CHECK(newer.report().defaulted.empty());
  CHECK(has(refusal<Index>(path), {"version 3", "expects 0"}));
  save(path, WideRank{});
  CHECK(has(refusal<Rank>(path), {"version 0", "opens 1 to 2"}));
}

TEST_CASE_FIXTURE(onecopy::AtPath, "an array that does not agree with the schema is an error before anything is made") {
  const auto words = std::as_bytes(std::span<const char>("0123456789abcdef"));
  const auto refuse = [&](const std::vector<onecopy::NamedArray>& arrays,
                          const std::string& fields = R"("value[].words":"U64[]","value[].id":"U32")") {
    save_parts(path, fields, arrays);
    return refusal<std::vector<Sub>>(path);
  };
  const auto u64 = [&](const std::string& name, std::vector<std::uint64_t> shape, std::size_t bytes) {
    return onecopy::NamedArray{{name, onecopy::DType::u64, std::move(shape)}, words.first(bytes)};
  };
  CHECK(has(refuse({}), {"'value[]'", "'value[].words': U64[]", "expects a sequence"}));
  CHECK(has(refuse({u64("value.count", {2}, 16)}), {"'value[]'", "U64[2]", "'value.count'", "expects U64"}));
  // 0x3736353433323130 elements: more than any file holds.
  const auto count = u64("value.count", {}, 8);
  const auto items = u64("value[].words", {2}, 16);
  CHECK(has(refuse({count, items}), {"'value[].words.offsets'", "no such array"}));
  CHECK(has(refuse({count, items, u64("value[].words.offsets", {2}, 16)}),
            {"'value[].words'", "U64[2]", "'value[].words.offsets'", "U64[3978425819141910833]"}));
  CHECK(has(refuse({}, R"("x":"U64","x":"U32")"), {"'x' twice"}));
  CHECK(has(refuse({}, R"("x":5)"), {"expected"}));
}

// Under the sanitizers, an offset that is read twice from the file is an overflow here.
TEST_CASE_FIXTURE(onecopy::AtPath, "a file that is written to while it is opened causes no read outside it") {
  save(path, std::vector<std::vector<std::uint64_t>>(1000, std::vector<std::uint64_t>(3, 7)));
  const auto file = onecopy::ArrayFile::open(path);
  const auto& entry = file.entry("value[].offsets");
  const std::uint64_t last = entry.offset + entry.length - sizeof(std::uint64_t);
  const int fd = ::open(path.c_str(), O_RDWR);
  std::jthread writer([&](const std::stop_token& stop) {
    for (std::uint64_t i = 0; !stop.stop_requested(); ++i) {
      const std::uint64_t value = i % 2 == 0 ? 3000 : std::uint64_t{1} << 40U;
      (void)!::pwrite(fd, &value, sizeof value, static_cast<off_t>(last));
    }
  });
  int refused = 0;
  for (int i = 0; i < 3000; ++i) {
    try {
      const auto value = open<std::vector<OwningSpan<std::uint64_t>>>(path);
      for (const auto& one : *value) CHECK(one.size() == 3);
    } catch (const FormatError&) {
      ++refused;
    }
  }
  writer = {};
  ::close(fd);
  CHECK(refused > 0);
}

TEST_CASE_FIXTURE(onecopy::AtPath, "offsets that fall, and sequences of two where one is the most, are errors") {
  const auto save_offsets = [&](const std::vector<std::uint64_t>& offsets, const std::string& type,
                                const std::string& elements = "value[]") {
    const std::uint64_t count = offsets.size() - 1;
    const std::vector<std::uint8_t> items(offsets.back());
    save_parts(path, "\"" + elements + "\":\"" + type + "\"",
               {{{"value.count", onecopy::DType::u64, {}}, std::as_bytes(std::span(&count, 1))},
                {{elements + ".offsets", onecopy::DType::u64, {offsets.size()}}, std::as_bytes(std::span(offsets))},
                {{elements, onecopy::DType::u8, {items.size()}}, std::as_bytes(std::span(items))}});
  };
  using Jagged = std::vector<std::vector<std::uint8_t>>;
  save_offsets({0, 2, 5}, "U8[]");
  const auto jagged = open<Jagged>(path);
  CHECK(jagged->at(1).size() == 3);
  for (const auto& offsets : {std::vector<std::uint64_t>{0, 6, 5}, {1, 2, 5}, {0, UINT64_MAX, 5}}) {
    save_offsets(offsets, "U8[]");
    CHECK(has(refusal<Jagged>(path), {"'value[].offsets'", "do not increase"}));
    CHECK(refusal<OwningSpan<OwningSpan<std::uint8_t>>>(path) == refusal<Jagged>(path));
  }
  save_offsets({0, 0, 2}, "U8?");
  CHECK(has(refusal<std::vector<std::optional<std::uint8_t>>>(path), {"'value[]'", "more than one value"}));
  save_offsets({0, 1, 2}, "U8[]", "value?");
  CHECK(has(refusal<std::optional<std::vector<std::uint8_t>>>(path), {"'value?'", "has 2 values", "at most one"}));
  const std::array<std::byte, 2> pair{};
  save_parts(path, R"("value":"U8?")", {{{"value", onecopy::DType::u8, {2}}, pair}});
  CHECK(has(refusal<std::optional<std::uint8_t>>(path), {"'value'", "has 2 values", "at most one"}));
  const std::byte two{2};
  save_parts(path, R"("value":"BOOL")", {{{"value", onecopy::DType::boolean, {}}, {&two, 1}}});
  CHECK(has(refusal<bool>(path), {"'value'", "neither 0 nor 1"}));
}

TEST_CASE_FIXTURE(onecopy::AtPath,
                  "an array that does not begin where its type may is an error, and not a misaligned read") {
  // By hand, because our writer aligns everything: 1 byte of something else, then numbers of 8 bytes.
  const std::string ours = R"({\"version\":1,\"kind\":\"struct\",\"schema\":{\"fields\":{\"value\":\"U64[]\"}}})";
  for (const std::size_t count : {2U, 0U}) {
    const std::string header = R"({"__metadata__":{"onecopy":")" + ours +
                               R"("},"#0":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                               R"("value":{"dtype":"U64","shape":[)" +
                               std::to_string(count) + R"(],"data_offsets":[1,)" + std::to_string(1 + 8 * count) +
                               "]}}  ";
    std::string text(8, '\0');
    text[0] = static_cast<char>(header.size());
    REQUIRE(header.size() < 256);
    std::ofstream(path, std::ios::binary) << text + header + std::string(1 + 8 * count, 'x');
    const std::size_t at = 8 + header.size() + 1;
    REQUIRE(at % 8 != 0);
    const auto refused = refusal<OwningSpan<std::uint64_t>>(path);
    if (count == 0) CHECK(refused == "accepted");
    if (count != 0) CHECK(has(refused, {"'value'", "byte " + std::to_string(at), "multiple of 8"}));
  }
}
