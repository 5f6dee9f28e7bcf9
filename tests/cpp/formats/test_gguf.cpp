#include "formats/parsing.hpp"
#include "onecopy/formats/gguf.hpp"
#include "precompiled.hpp"

namespace onecopy {
namespace {

using namespace testing;

std::string text(std::string_view value) { return put(std::uint64_t{value.size()}) + std::string(value); }

std::string pair(std::string_view key, std::uint32_t type, const std::string& value) {
  return text(key) + put(type) + value;
}

std::string array(std::uint32_t type, std::uint64_t count, const std::string& values) {
  return put(type) + put(count) + values;
}

std::string tensor(std::string_view name, const std::vector<std::uint64_t>& fastest_first, std::uint32_t type,
                   std::uint64_t offset) {
  std::string info = text(name) + put(static_cast<std::uint32_t>(fastest_first.size()));
  for (const auto extent : fastest_first) info += put(extent);
  return info + put(type) + put(offset);
}

struct File {
  std::vector<std::string> pairs{};
  std::vector<std::string> tensors{};
  std::string data{};
  std::size_t alignment = 32;
  std::uint32_t version = 3;

  std::string bytes() const {
    std::string all = "GGUF" + put(version) + put(std::uint64_t{tensors.size()}) + put(std::uint64_t{pairs.size()});
    for (const auto& one : pairs) all += one;
    for (const auto& one : tensors) all += one;
    while (all.size() % alignment != 0) all.push_back('\0');
    return all + data;
  }
};

std::string error_of(const std::string& file) { return error_in<gguf::parse>(file); }
std::string error_of(const File& file) { return error_of(file.bytes()); }

}  // namespace

TEST_CASE("blocks, scalars and tensors of nothing are found where they lie, in both versions") {
  const auto blocks = std::string(288, 'x');
  for (const std::uint32_t version : {2U, 3U}) {
    const auto file =
        File{.tensors = {tensor("q", {256, 2}, 12, 0), tensor("one", {}, 28, 288), tensor("none", {0}, 8, 0)},
             .data = blocks + "12345678",
             .version = version}
            .bytes();
    CHECK(gguf::is_gguf(bytes_of(file)));
    const auto index = gguf::parse(bytes_of(file));
    CHECK(index.container() == "gguf");
    CHECK(index.kind() == Kind::foreign);
    CHECK(index.data_offset() == file.size() - 296);
    CHECK(index.metadata().at("GGUF.version") == std::to_string(version));
    CHECK(listed(file, index) == "q Q4_K[2,256] = " + blocks + "; one F64[] = 12345678; none Q8_0[0]");
  }
  // The data begins at the first multiple of the alignment, wherever the header ends.
  for (std::size_t length = 0; length <= 32; ++length) {
    const auto file = File{.pairs = {pair("name", 8, text(std::string(length, 'x')))},
                           .tensors = {tensor("w", {1, 2}, 0, 0)},
                           .data = "12345678"}
                          .bytes();
    CHECK(listed(file, gguf::parse(bytes_of(file))) == "w F32[2,1] = 12345678");
  }
}

TEST_CASE("metadata of a GGUF file is converted to text") {
  std::string numbers;
  std::string few = "[0";
  for (std::uint64_t i = 0; i < 33; ++i) numbers += put(i);
  for (int i = 1; i < 32; ++i) few += ", " + std::to_string(i);
  struct Case {
    std::uint32_t type;
    std::string bytes;
    std::string expected;
  };
  for (const auto& [type, bytes, expected] :
       {Case{0, put(std::uint8_t{255}), "255"}, Case{1, put(std::int8_t{-1}), "-1"},
        Case{2, put(std::uint16_t{65535}), "65535"}, Case{3, put(std::int16_t{-2}), "-2"},
        Case{4, put(UINT32_MAX), "4294967295"}, Case{5, put(std::int32_t{-3}), "-3"}, Case{6, put(1e-5F), "1e-05"},
        Case{7, put(true), "true"}, Case{8, text("caf\xC3\xA9"), "caf\xC3\xA9"},
        Case{10, put(UINT64_MAX), "18446744073709551615"},
        Case{11, put(std::int64_t{INT64_MIN}), "-9223372036854775808"}, Case{12, put(0.1), "0.1"},
        Case{9, array(10, 32, numbers.substr(0, 256)), few + "]"},
        Case{9, array(10, 33, numbers), "[33 values of UINT64]"},
        Case{9, array(8, 2, text("a") + text("\xFF")), "[2 values of STRING]"},
        Case{9, array(7, 2, std::string("\x01\x00", 2)), "[true, false]"}, Case{9, array(4, 0, ""), "[]"},
        Case{9, array(9, 2, array(4, 1, put(7U)) + array(8, 1, text("b"))), "[2 values of ARRAY]"}}) {
    const auto index = gguf::parse(bytes_of(File{.pairs = {pair("key", type, bytes)}}.bytes()));
    CHECK(index.metadata().at("key") == expected);
    CHECK(index.entries().empty());
  }
}

TEST_CASE("a GGUF file may say its alignment") {
  const auto with = [](std::uint32_t alignment, std::uint64_t offset) {
    return File{.pairs = {pair("general.alignment", 4, put(alignment))},
                .tensors = {tensor("a", {1}, 24, 0), tensor("b", {1}, 24, offset)},
                .data = std::string(300, 'x'),
                .alignment = alignment};
  };
  CHECK(error_of(with(8, 8)) == "accepted");
  CHECK(error_of(with(256, 256)) == "accepted");
  CHECK(error_of(with(64, 32)) == "malformed");
  CHECK(gguf::parse(bytes_of(with(256, 256).bytes())).data_offset() == 256);
  for (const std::uint32_t wrong : {4U, 24U, 1U << 21U}) CHECK(error_of(with(wrong, 0)) == "malformed at 57");
  CHECK(error_of(File{.pairs = {pair("general.alignment", 4, put(0U))}}) == "malformed at 57");
  CHECK(error_of(File{.pairs = {pair("general.alignment", 10, put(std::uint64_t{32}))}}) == "malformed at 53");
  const auto twice = pair("general.alignment", 4, put(32U));
  CHECK(error_of(File{.pairs = {twice, twice}}) == "inconsistent at 90");
}

TEST_CASE("every type of ggml has its size, and those that it removed are refused") {
  struct Facts {
    std::uint32_t type;
    std::uint64_t row;
    std::string name;
    std::size_t bytes;
  };
  for (const auto& [type, row, name, bytes] : std::vector<Facts>{{2, 32, "Q4_0", 18},
                                                                 {8, 32, "Q8_0", 34},
                                                                 {15, 256, "Q8_K", 292},
                                                                 {23, 256, "IQ4_XS", 136},
                                                                 {34, 256, "TQ1_0", 54},
                                                                 {39, 32, "MXFP4", 17},
                                                                 {40, 64, "NVFP4", 36},
                                                                 {42, 64, "Q2_0", 18}}) {
    const std::string data(bytes * 3, 'x');
    const auto file = File{.tensors = {tensor("w", {row, 3}, type, 0)}, .data = data + "y"}.bytes();
    CHECK(listed(file, gguf::parse(bytes_of(file))) == "w " + name + "[3," + std::to_string(row) + "] = " + data);
  }
  for (const std::uint32_t type : {4U, 5U, 31U, 32U, 33U, 36U, 37U, 38U})
    CHECK(error_of(File{.tensors = {tensor("w", {256}, type, 0)}}) == "unsupported at 49");
  CHECK(error_of(File{.tensors = {tensor("w", {256}, 43, 0)}}) == "unsupported at 49");
}

TEST_CASE("what is no GGUF file of version 2 or 3 is refused") {
  CHECK(error_of(std::string("GGU")) == "not_this_format");
  CHECK(!gguf::is_gguf(bytes_of("GGML")));
  CHECK(error_of(std::string("GGUF\x03")) == "truncated at 4");
  CHECK(error_of(File{.version = 1}) == "unsupported");
  CHECK(error_of(File{.version = 4}) == "unsupported");
  CHECK(error_of(File{.version = 0}) == "unsupported");
  CHECK(error_of(File{.version = 3U << 24U}) == "unsupported");
}

TEST_CASE("what does not fit into a GGUF file is refused, with its name and the reason") {
  const auto head = [](std::uint64_t tensors, std::uint64_t pairs) {
    return "GGUF" + put(3U) + put(tensors) + put(pairs);
  };
  CHECK(error_of(head(UINT64_MAX, 0)) == "truncated at 16");
  CHECK(error_of(head(0, 1)) == "truncated at 24");
  CHECK(error_of(File{.pairs = {put(UINT64_MAX) + "abcdefgh"}}) == "too_costly at 32");
  CHECK(error_of(File{.pairs = {text(std::string(65536, 'k')) + put(4U) + put(1U)}}) == "too_costly at 32");
  CHECK(error_of(File{.pairs = {pair("k", 13, put(1U))}}) == "unsupported at 37");
  CHECK(error_of(File{.pairs = {pair("k", 7, put(std::uint8_t{2}))}}) == "malformed at 38");
  CHECK(error_of(File{.pairs = {pair("k", 8, text("\xFF"))}}) == "malformed at 46");
  CHECK(error_of(File{.pairs = {pair("k", 9, array(12, 1ULL << 61U, "12345678"))}}) == "truncated at 49");
  CHECK(error_of(File{.pairs = {pair("k", 9, array(8, 1, put(UINT64_MAX)))}}) == "truncated at 57");
  CHECK(error_of(File{.pairs = {pair("k", 4, put(1U)), pair("k", 4, put(1U))}}) == "inconsistent at 58");
  std::string deep = array(4, 0, "");
  for (int i = 0; i < gguf::deepest_array; ++i) deep = array(9, 1, deep);
  CHECK(error_of(File{.pairs = {pair("k", 9, deep)}}) == "too_costly at 145");

  CHECK(error_of(File{.tensors = {tensor(std::string(64, 'n'), {1}, 0, 0)}, .data = "1234"}) == "accepted");
  CHECK(error_of(File{.tensors = {tensor(std::string(65, 'n'), {1}, 0, 0)}}) == "too_costly at 32");
  CHECK(error_of(File{.tensors = {tensor("w", {1, 1, 1, 1, 1}, 0, 0)}}) == "too_costly at 37");
  CHECK(error_of(File{.tensors = {tensor("w", {UINT64_MAX}, 0, 0)}}) == "malformed at 45");
  CHECK(error_of(File{.tensors = {tensor("w", {1ULL << 62U, 4}, 0, 0)}}) == "out_of_bounds at 65");
  CHECK(error_of(File{.tensors = {tensor("w", {33}, 2, 0)}}) == "inconsistent at 57");
  CHECK(error_of(File{.tensors = {tensor("w", {}, 2, 0)}}) == "inconsistent at 49");
  CHECK(error_of(File{.tensors = {tensor("w", {2}, 0, 0)}, .data = "1234567"}) == "out_of_bounds");
  CHECK(error_of(File{.tensors = {tensor("w", {1}, 24, 0x8000000000000000)}, .data = "1"}) == "out_of_bounds");
  CHECK(error_of(File{.tensors = {tensor("a", {16}, 0, 0), tensor("b", {1}, 0, 32)}, .data = std::string(64, 'x')}) ==
        "inconsistent at 128");
  CHECK(error_of(File{.tensors = {tensor("a", {1}, 0, 0), tensor("a", {1}, 0, 32)}, .data = std::string(64, 'x')}) ==
        "inconsistent");
  auto cut = File{.tensors = {tensor("w", {0}, 0, 0)}, .alignment = 1}.bytes();
  CHECK(error_of(cut) == "truncated at 57");
}

TEST_CASE("files that the gguf package wrote open, with the shapes and offsets that its reader says") {
  struct Expected {
    std::string shown;
    ByteRange small;            // in the file
    std::uint64_t aligned = 0;  // where it is in the other file
  };
  const std::vector<Expected> expected{{"f32 F32[2,3]", {640, 24}, 768},
                                       {"f16 F16[2,3,4]", {672, 48}, 896},
                                       {"i8 I8[5]", {736, 5}, 1024},
                                       {"i64 I64[3,1]", {768, 24}, 1152},
                                       {"q8_0 Q8_0[2,256]", {800, 544}, 1280},
                                       {"q4_0 Q4_0[2,256]", {1344, 288}, 1920},
                                       {"bf16 BF16[2,256]", {1632, 1024}, 2304}};
  for (const bool is_aligned : {false, true}) {
    const auto file =
        contents(std::filesystem::path(ONECOPY_GOLDEN) / "gguf" / (is_aligned ? "aligned.gguf" : "small.gguf"));
    const auto index = gguf::parse(bytes_of(file));
    for (const auto& [key, value] : {std::pair("general.architecture", "test"),
                                     {"general.name", "a golden file"},
                                     {"test.context_length", "128"},
                                     {"test.rope.freq_base", "10000"},
                                     {"test.sections", "[1, -2, 3]"},
                                     {"tokenizer.ggml.tokens", "[3 values of STRING]"}})
      CHECK(index.metadata().at(key) == value);
    std::string all;
    for (const auto& [shown, small, aligned] : expected)
      all += (all.empty() ? "" : "; ") + shown + " = " + file.substr(is_aligned ? aligned : small.offset, small.length);
    CHECK(listed(file, index) == all);
  }
}

TEST_CASE("a GGUF file cut or flipped anywhere is accepted or refused, never worse") {
  const File file{.pairs = {pair("k", 8, text("v")), pair("a", 9, array(4, 2, put(1U) + put(2U)))},
                  .tensors = {tensor("w", {3, 2}, 0, 0), tensor("q", {32}, 2, 32)},
                  .data = std::string(50, 'x')};
  check_damaged(file.bytes(), [](Bytes bytes) { return ranges_of(gguf::parse(bytes)); });
}

}  // namespace onecopy
