#include "formats/parsing.hpp"
#include "formats/wire/protobuf.hpp"
#include "onecopy/formats/onnx.hpp"
#include "precompiled.hpp"

namespace onecopy {
namespace {

using namespace testing;

constexpr std::uint64_t f32 = 1;
constexpr std::uint64_t i64 = 7;
constexpr std::uint64_t text = 8;

constexpr auto error_of = error_in<onnx::parse>;

std::string number(std::uint32_t field, std::uint64_t value) {
  std::string message;
  protobuf::append_number(message, field, value);
  return message;
}

std::string bytes(std::uint32_t field, std::string_view content) {
  std::string message;
  protobuf::append_bytes(message, field, content);
  return message;
}

std::string tensor(std::string_view name, std::uint64_t type, const std::vector<std::uint64_t>& shape,
                   std::string_view rest = {}) {
  std::string message;
  for (const auto extent : shape) message += number(1, extent);
  return message + number(2, type) + bytes(8, name) + std::string(rest);
}

std::string raw(std::string_view content) { return bytes(9, content); }

std::string outside(const std::vector<std::pair<std::string_view, std::string_view>>& entries) {
  std::string fields;
  for (const auto& [key, value] : entries) fields += bytes(13, bytes(1, key) + bytes(2, value));
  return fields + number(14, 1);
}

std::string graph(const std::vector<std::string>& initializers, std::string_view rest = {}) {
  std::string message(rest);
  for (const auto& one : initializers) message += bytes(5, one);
  return message;
}

std::string model(std::string_view graph) {
  return number(1, 10) + bytes(2, "a test") + bytes(7, graph) + bytes(8, number(2, 21));
}

// A node whose attribute `name` holds a tensor or a graph.
std::string node(std::string_view name, std::string_view attribute, std::uint32_t field, std::string_view value) {
  return bytes(1, bytes(3, name) + bytes(5, bytes(1, attribute) + bytes(field, value)));
}

}  // namespace

TEST_CASE("tensors are found where they lie") {
  const auto file = model(graph({
      tensor("w", f32, {2, 1}, raw("abcdefgh")),
      tensor("packed", f32, {2}, bytes(4, "12345678")),
      tensor("scalar", i64, {}, raw("ABCDEFGH")),
      tensor("empty", f32, {0, 3}),
      tensor("far", f32, {4}, outside({{"location", "data/w.bin"}, {"offset", "4096"}, {"length", "16"}})),
  }));
  const auto found = onnx::parse(bytes_of(file));
  CHECK(found.ir_version == 10);
  CHECK(found.producer == "a test");
  CHECK(found.opsets.at("") == 21);
  CHECK(listed(file, onnx::index(bytes_of(file))) ==
        "w F32[2,1] = abcdefgh; packed F32[2] = 12345678; scalar I64[] = ABCDEFGH; empty F32[0,3]");
  REQUIRE(found.tensors.size() == 5);
  CHECK(found.tensors[0].is_initializer);
  CHECK(found.tensors[4].storage == onnx::Storage::external);
  CHECK(found.tensors[4].location == "data/w.bin");
  CHECK(found.tensors[4].data == ByteRange{4096, 16});
}

TEST_CASE("what is not laid out as in memory is named with the reason and not given") {
  const auto sparse = bytes(1, tensor("s", f32, {1}, raw("abcd")));
  const auto others =
      node("c", "sparse_value", 22, sparse) + node("d", "sparse_values", 23, sparse) + bytes(15, sparse);
  const auto file = model(
      graph({tensor("p", f32, {2}, bytes(4, "1234") + bytes(4, "5678")), tensor("i", i64, {2}, bytes(7, "\x01\x02")),
             tensor("t", text, {1}, bytes(6, "hello")), tensor("u", 99, {1}, raw("x"))},
            others));
  for (const auto& tensor : onnx::parse(bytes_of(file)).tensors) CHECK(tensor.storage == onnx::Storage::coded);
  const auto index = onnx::index(bytes_of(file));
  CHECK(index.entries().empty());
  CHECK(index.metadata().at("left out") ==
        R"({"not stored as raw bytes": ["p", "i"], "of an unknown type": ["u"], "of text": ["t"], )"
        R"("sparse": ["c.sparse_value.s", "d.sparse_values.s", "s"]})");
}

TEST_CASE("subgraphs and constants have the path of their node before their name") {
  const auto inner = graph({tensor("w", f32, {1}, raw("abcd"))});
  const auto file =
      model(graph({tensor("w", f32, {1}, raw("ABCD"))},
                  node("If_0", "then_branch", 6, inner) + node("c", "value", 5, tensor("", f32, {}, raw("1234")))));
  CHECK(onnx::parse(bytes_of(file)).nodes == 2);
  CHECK(!onnx::parse(bytes_of(file)).tensors[0].is_initializer);
  const auto value = bytes(1, "value") + bytes(5, tensor("", f32, {}, raw("1234")));
  const auto outputs = model(graph({}, bytes(1, bytes(2, "first") + bytes(2, "second") + bytes(5, value))));
  CHECK(listed(outputs, onnx::index(bytes_of(outputs))) == "first.value F32[] = 1234");
  CHECK(listed(file, onnx::index(bytes_of(file))) ==
        "If_0.then_branch.w F32[1] = abcd; c.value F32[] = 1234; w F32[1] = ABCD");
}

TEST_CASE("what does not fit is refused, with its name and the reason") {
  CHECK(error_of("") == "not_this_format");
  CHECK(error_of("\x3A") == "truncated at 1");
  CHECK(error_of("\x3A\x7F") == "truncated at 2");
  CHECK(error_of(model("") + "\x3A") == "truncated at 17");
  CHECK(error_of("\x0B") == "malformed at 1");
  CHECK(error_of(std::string("\x00", 1)) == "malformed at 1");
  std::string longest = "\x08";
  protobuf::append_varint(longest, UINT64_MAX);
  CHECK(longest.size() == 11);
  CHECK(error_of(longest) == "not_this_format");
  longest.back() = '\x02';
  CHECK(error_of(longest) == "malformed at 11");
  CHECK(error_of(model(graph({tensor("w", f32, {3}, raw("abcd"))}))) == "inconsistent");
  CHECK(error_of(model(graph({tensor("w", f32, {3})}))) == "inconsistent");
  CHECK(error_of(model(graph({tensor("w", f32, {UINT64_MAX}, raw(""))}))) == "malformed");
  CHECK(error_of(model(graph({tensor("w", f32, {1ULL << 62U, 4}, raw(""))}))) == "out_of_bounds");
  CHECK(error_of(model(graph({tensor("w", f32, {1}, raw("abcd")), tensor("w", f32, {1}, raw("abcd"))}))) ==
        "inconsistent");
  CHECK(error_of(model(graph({tensor("w", f32, {1}, raw("abcd") + raw("abcd"))}))) == "inconsistent");
  CHECK(error_of(model(graph({tensor("\xFF", f32, {1}, raw("abcd"))}))) == "malformed");
}

TEST_CASE("a location leads nowhere but into the model's folder") {
  using namespace std::string_view_literals;
  const auto at = [](std::string_view location) {
    return error_of(model(graph({tensor("w", f32, {1}, outside({{"location", location}}))})));
  };
  for (const auto location : {""sv, "/etc/passwd"sv, "../w.bin"sv, "a/../../w.bin"sv, ".."sv, "a/.."sv, "."sv,
                              "a/../b/../.."sv, "a\\..\\w"sv, "a\0b"sv})
    CHECK(at(location) == "out_of_bounds");
  for (const auto location : {"w.bin"sv, "a/b.bin"sv, "..w"sv, "a..b"sv, "./w"sv, "./a/../a/w"sv, "a/b/../../w"sv})
    CHECK(at(location) == "accepted");
  CHECK(error_of(model(graph({tensor("w", f32, {1}, outside({{"location", "w"}, {"offset", "-1"}}))}))) == "malformed");
  CHECK(error_of(model(graph({tensor("w", f32, {1}, outside({{"location", "w"}, {"length", "5"}}))}))) ==
        "inconsistent");
}

TEST_CASE("a long name over many attributes costs no more than a few times the file") {
  const std::string name(100'000, 'n');
  for (const std::uint32_t field : {5U, 10U}) {  // a tensor; tensors
    std::string attributes;
    for (int i = 0; i < 20'000; ++i) attributes += bytes(5, bytes(field, ""));
    CHECK(error_of(model(graph({}, bytes(1, bytes(2, name) + attributes)))) == "too_costly");
  }
}

TEST_CASE("graphs inside graphs have an end") {
  const auto nested = [](int depth) {
    auto inner = graph({});
    for (int i = 0; i < depth; ++i) inner = graph({}, node("n", "body", 6, inner));
    return model(inner);
  };
  CHECK(error_of(nested(onnx::deepest_graph)) == "accepted");
  CHECK(error_of(nested(onnx::deepest_graph + 1)) == "too_costly");
}

TEST_CASE("a skeleton says where the data was, and leaves the rest as it is") {
  const auto file = model(graph({tensor("big", f32, {2}, raw("abcdefgh")), tensor("small", f32, {1}, raw("abcd"))},
                                node("n", "value", 5, tensor("", f32, {2}, raw("12345678")))));
  const auto light = onnx::skeleton(bytes_of(file), "model.onnx", 8);
  const auto before = onnx::parse(bytes_of(file));
  const auto after = onnx::parse(bytes_of(light));
  REQUIRE(after.tensors.size() == before.tensors.size());
  CHECK(after.ir_version == before.ir_version);
  CHECK(after.opsets == before.opsets);
  CHECK(light.find("abcdefgh") == std::string::npos);
  for (std::size_t i = 0; i < after.tensors.size(); ++i) {
    CHECK(after.tensors[i].name == before.tensors[i].name);
    CHECK(after.tensors[i].shape == before.tensors[i].shape);
    const bool is_big = after.tensors[i].name == "big";
    CHECK((after.tensors[i].storage == onnx::Storage::external) == is_big);
    if (is_big) CHECK(after.tensors[i].data == before.tensors[i].data);
  }
}

}  // namespace onecopy
