#include "flatbuffer_builder.hpp"
#include "formats/parsing.hpp"
#include "onecopy/formats/ort.hpp"
#include "precompiled.hpp"

namespace onecopy {
namespace {

using namespace testing;

using flatbuffer_test::file_of;
using flatbuffer_test::TableOf;

constexpr std::int32_t f32 = 1;
constexpr std::int32_t text = 8;
constexpr std::int32_t int4 = 22;
constexpr std::int32_t float4 = 23;

TableOf tensor(std::string_view name, std::int32_t type, const std::vector<std::int64_t>& dims) {
  return TableOf().text(0, std::string(name)).numbers(2, dims).number(3, type);
}

TableOf tensor(std::string_view name, std::int32_t type, const std::vector<std::int64_t>& dims, std::string raw) {
  return tensor(name, type, dims).bytes(4, std::move(raw));
}

TableOf attribute(std::string name, unsigned field, TableOf value) {
  return TableOf().text(0, std::move(name)).table(field, std::move(value));
}

TableOf node(std::string name, std::vector<TableOf> attributes) {
  return TableOf().text(0, std::move(name)).texts(9, {"out_of_it"}).tables(10, std::move(attributes));
}

TableOf graph(std::vector<TableOf> initializers, std::vector<TableOf> nodes = {}) {
  return TableOf().tables(0, std::move(initializers)).tables(2, std::move(nodes));
}

std::string model(TableOf graph) {
  return file_of(TableOf().text(0, "6").table(1, TableOf().text(2, "a test").text(3, "1.0").table(7, std::move(graph))),
                 "ORTM");
}

constexpr auto error_of = error_in<ort::parse>;

}  // namespace

TEST_CASE("constants of an ORT model are found where they lie") {
  const auto file = model(graph({tensor("w", f32, {2, 1}, "abcdefgh"), tensor("scalar", f32, {}, "ABCD"),
                                 tensor("empty", f32, {0, 3}), tensor("half bytes", int4, {3}, "xy"),
                                 tensor("fours", float4, {4}, "uv"), tensor("odd fours", float4, {3}, "UV")}));
  CHECK(ort::is_ort(bytes_of(file)));
  const auto index = ort::parse(bytes_of(file));
  CHECK(index.container() == "ort");
  CHECK(index.kind() == Kind::foreign);
  CHECK(index.metadata().at("ort_version") == "6");
  CHECK(index.metadata().at("producer") == "a test 1.0");
  CHECK(!index.metadata().contains("left out"));
  CHECK(listed(file, index) ==
        "w F32[2,1] = abcdefgh; scalar F32[] = ABCD; empty F32[0,3]; half bytes INT4[3] = xy; fours F4[4] = uv; "
        "odd fours FLOAT4E2M1[3] = UV");
  CHECK(index.data_offset() == file.find("abcdefgh"));
}

TEST_CASE("subgraphs and attributes of an ORT model have the path of their node before their name") {
  const auto inner = graph({tensor("w", f32, {1}, "abcd")});
  const auto file = model(graph(
      {tensor("w", f32, {1}, "ABCD")},
      {node("If_0", {attribute("then_branch", 7, inner)}),
       node("", {attribute("value", 6, tensor("", f32, {}, "1234"))}),
       node("If_0", {attribute("then_branch", 7, inner)}),
       node("many", {TableOf().text(0, "all").tables(11, {tensor("a", f32, {}, "aaaa"), tensor("b", f32, {}, "bbbb")}),
                     TableOf().text(0, "graphs").tables(12, {inner})})}));
  const auto index = ort::parse(bytes_of(file));
  CHECK(listed(file, index) ==
        "w F32[1] = ABCD; If_0.then_branch.w F32[1] = abcd; out_of_it.value. F32[] = 1234; "
        "If_0.then_branch.w~2 F32[1] = abcd; many.all.a F32[] = aaaa; many.all.b F32[] = bbbb; "
        "many.graphs.w F32[1] = abcd");
  CHECK(index.find("If_0.then_branch.w~2")->offset > index.find("If_0.then_branch.w")->offset);
}

TEST_CASE("constants that are no bytes of the file are named with the reason and not given") {
  auto main_graph = graph({tensor("t", text, {1}).texts(5, {"hello"}), tensor("u", 99, {1}, "x"),
                           tensor("o", f32, {1}).number(6, std::int64_t{0}),
                           tensor("p", f32, {1}).number(6, std::int64_t{64}), tensor("w", f32, {1}, "abcd")});
  main_graph.tables(7, {TableOf(), TableOf().table(0, tensor("few", f32, {1}, "x"))});
  const auto file = model(main_graph);
  const auto index = ort::parse(bytes_of(file));
  CHECK(index.entries().size() == 1);
  CHECK(index.metadata().at("left out") ==
        R"({"in another file": ["o", "p"], "of an unknown type": ["u"], "of text": ["t"], "sparse": ["", "few"]})");
}

TEST_CASE("what does not fit into an ORT model is refused, with its name and the reason") {
  CHECK(error_of("ORTM") == "not_this_format");
  CHECK(!ort::is_ort(bytes_of(file_of(TableOf(), "ORTN"))));
  CHECK(error_of(file_of(TableOf(), "ORTM")) == "malformed");
  CHECK(error_of(file_of(TableOf().table(1, TableOf()), "ORTM")) == "malformed");
  CHECK(error_of(model(graph({tensor("w", f32, {3}, "abcd")}))) == "inconsistent");
  CHECK(error_of(model(graph({tensor("w", f32, {3})}))) == "inconsistent");
  CHECK(error_of(model(graph({tensor("w", f32, {-1}, "abcd")}))) == "malformed");
  CHECK(error_of(model(graph({tensor("w", f32, {1LL << 62, 4}, "")}))) == "out_of_bounds");
  CHECK(error_of(model(graph({tensor("w", f32, {1}, "abcd"), tensor("w", f32, {1}, "abcd")}))) == "inconsistent");
  CHECK(error_of(model(graph({tensor("\xFF", f32, {1}, "abcd")}))) == "malformed at 224");
  const auto file = model(graph({tensor("v", f32, {2}, "abcdefgh"), tensor("w", f32, {1}, "ABCD")}));
  CHECK(error_of(file.substr(0, file.find("ABCD") - 4)) == "truncated at 352");
}

TEST_CASE("data of two constants of an ORT model cannot overlap") {
  // The data of 'w' looks like a vector of four bytes, too, and the way to that of 'v' is made to lead there.
  auto file = model(graph({tensor("v", f32, {1}, "ABCD"), tensor("w", f32, {2}, std::string("\4\0\0\0abcd", 8))}));
  REQUIRE(error_of(file) == "accepted");
  const auto leads_to = file.find("ABCD") - 4;
  const auto wanted = file.find("abcd") - 4;
  std::size_t at = 0;
  while (at + number_in<std::uint32_t>(file, at) != leads_to) at += 4;
  file = with(file, at, static_cast<std::uint32_t>(wanted - at));
  CHECK(error_of(file) == "inconsistent at 352");
}

TEST_CASE("graphs inside graphs of an ORT model have an end") {
  const auto nested = [](int depth) {
    auto inner = graph({});
    for (int i = 0; i < depth; ++i) inner = graph({}, {node("n", {attribute("body", 7, std::move(inner))})});
    return model(std::move(inner));
  };
  CHECK(error_of(nested(ort::deepest_graph)) == "accepted");
  CHECK(error_of(nested(ort::deepest_graph + 1)) == "too_costly");
}

TEST_CASE("a model that ONNX Runtime wrote opens") {
  const auto file = contents(std::filesystem::path(ONECOPY_GOLDEN) / "ort" / "small.ort");
  const auto index = ort::parse(bytes_of(file));
  CHECK(index.metadata().at("producer") == "golden 1");
  CHECK(index.metadata().at("left out") == R"({"of text": ["words"]})");
  const auto all = listed(file, index);
  for (const auto* entry : {"weight F32[4,3] = ", "table F16[5,3] = ", "flag BOOL[", "index I64[] = ",
                            "choice.then_branch.bias F32[2,3] = ", "choice.else_branch.bias F32[2,3] = "})
    CHECK(all.find(entry) != std::string::npos);
  for (const auto& [name, last, value] :
       {std::tuple("weight", 11U, 11.0F), {"choice.then_branch.bias", 5U, 1.0F}, {"choice.else_branch.bias", 5U, 2.0F}})
    CHECK(number_in<float>(data_of(file, index.find(name)), last * sizeof(float)) == value);
}

}  // namespace onecopy
