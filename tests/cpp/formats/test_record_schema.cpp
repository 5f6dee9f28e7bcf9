#include <doctest/doctest.h>

#include <string>

#include "formats/parsing.hpp"
#include "onecopy/formats/record_schema.hpp"

namespace onecopy::records {
namespace {

Type leaf(TypeKind kind, std::uint64_t length) {
  Type type;
  type.kind = kind;
  type.length = length;
  return type;
}

// One of each form: {"id": int, "a.b": [float or None], ...}, keys in two orders.
RecordSchema example() {
  Type list = leaf(TypeKind::list, 3);
  list.children = {leaf(TypeKind::real, 9)};
  list.children[0].nullable = true;
  Type array = leaf(TypeKind::array, 3);
  array.name = "<f4";
  array.ndim = 2;
  array.item_size = 4;
  array.scalar = true;
  Type map = leaf(TypeKind::map, 3);
  map.children = {leaf(TypeKind::text, 5), leaf(TypeKind::bytes, 5)};
  Type choice = leaf(TypeKind::choice, 3);
  choice.children = {leaf(TypeKind::bigint, 1), leaf(TypeKind::boolean, 2)};
  Type stamp = leaf(TypeKind::extension, 3);
  stamp.name = "datetime";
  stamp.children = {leaf(TypeKind::integer, 3)};
  Type pair = leaf(TypeKind::fixed, 3);
  pair.children = {leaf(TypeKind::number, 3), leaf(TypeKind::null, 3)};
  Type row = leaf(TypeKind::record, 3);
  row.fields = {"id", "a.b", "", "m", "\"x\"", "t", "p"};
  row.shapes = {{0, 1, 2, 3, 4, 5, 6}, {1, 0}, {}};
  row.children = {leaf(TypeKind::integer, 3), list, array, map, choice, stamp, pair};
  return {"list", row};
}

std::string wrapped(const std::string& schema) { return "{\"version\":1,\"schema\":" + schema + "}"; }

std::string types(const std::string& nodes, const std::string& container = "list") {
  return wrapped("{\"container\":\"" + container + "\",\"types\":[" + nodes + "]}");
}

TEST_CASE("a schema that was written is read as it was, and every cut of it is refused") {
  RecordSchema schema = example();
  const std::string text = wrapped(write_schema(schema));
  CHECK(parse_record_schema(text) == schema);
  for (std::size_t size = 0; size < text.size(); ++size)
    CHECK_THROWS_AS(static_cast<void>(parse_record_schema(text.substr(0, size))), FormatError);
  schema.rows.shapes = {{0, 1, 2, 3, 4, 5, 6}};  // of rows that are all alike nothing is said
  CHECK(write_schema(schema).find("shapes") == std::string::npos);
  CHECK(parse_record_schema(wrapped(write_schema(schema))) == schema);
}

TEST_CASE("what does not fit together is refused with what it is") {
  const auto refused = [](const std::string& text, const char* what) {
    CAPTURE(text);
    CHECK_THROWS_WITH_AS(static_cast<void>(parse_record_schema(text)), doctest::Contains(what), FormatError);
  };
  const auto refused_node = [&](const std::string& facts, const char* what, int children = 0) {
    const auto more = children == 0 ? "" : ",\"children\":" + std::to_string(children);
    auto nodes = "{\"kind\":" + facts + more + "}";
    for (int i = 0; i < children; ++i) nodes += ",{\"kind\":\"null\"}";
    refused(types(nodes), what);
  };
  refused("{}", "does not name the container");
  refused(types(""), "ends too early");
  refused(types(R"({"kind":"null"})", "set"), "unknown container 'set'");
  refused(types(R"({"kind":"null"})", "dict"), "must be pairs");
  refused(types(R"({"kind":"null"},{"kind":"null"})"), "nodes without a parent");
  refused_node(R"("nul")", "unknown kind 'nul'");
  refused_node(R"("list","children":1)", "ends too early");
  refused_node(R"("list","children":18446744073709551615)", "ends too early");
  refused_node(R"("list")", "'list' has the invalid number of 0 children");
  refused_node(R"("real")", "'real' has the invalid number of 1 children", 1);
  refused_node(R"("choice")", "'choice' has the invalid number of 1 children", 1);
  refused_node(R"("null","nullable":1)", "nullable");
  refused_node(R"("null","length":4611686018427387905)", "impossible length");
  refused_node(R"("array","item_size":4)", "has no dtype");
  refused_node(R"("array","name":"<f4","item_size":65537)", "maximum of 65536");
  refused_node(R"("array","name":"<f4","item_size":4,"ndim":65)", "maximum of 64");
  refused_node(R"("extension","length":2)", "has 2 values, but a child has 0", 1);
  refused_node(R"("record","fields":["a","a"])", "same field twice", 2);
  for (const std::string shapes : {"[[1]]", "[[0,0]]", "[[4294967295]]"})
    refused_node(R"("record","fields":["a"],"shapes":)" + shapes, "a shape that does not match", 1);
}

TEST_CASE("depth is limited, and a long flat list of nodes is no depth") {
  const auto nested = [](std::size_t depth) {
    std::string text;
    for (std::size_t i = 1; i < depth; ++i) text += "{\"kind\":\"list\",\"children\":1},";
    return testing::refusal([&] { return parse_record_schema(types(text + "{\"kind\":\"null\"}")); });
  };
  CHECK(nested(RecordSchema::deepest) == "accepted");
  CHECK(nested(RecordSchema::deepest + 1) == "too_costly");
}

TEST_CASE("names of buffers are distinct, whatever the fields are called") {
  const RecordSchema schema = example();
  CHECK(child_path("records.0", schema.rows, 1) == "records.0.a%2Eb");
  CHECK(child_path("records.0", schema.rows, 2) == "records.0.");
  CHECK(child_path("records.0.m", schema.rows.children[3], 1) == "records.0.m.value");
  CHECK(buffer_name("records.0.id", "data") == "records.0.id.data");
}

}  // namespace
}  // namespace onecopy::records
