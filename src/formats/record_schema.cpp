#include "onecopy/formats/record_schema.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <list>
#include <numeric>
#include <unordered_set>

#include "base/seeded_hash.hpp"
#include "formats/wire/json.hpp"
#include "onecopy/base/error.hpp"

namespace onecopy::records {
namespace {

constexpr std::array<std::string_view, 16> kind_names{"null", "boolean", "integer",   "bigint", "real",  "number",
                                                      "text", "bytes",   "list",      "tuple",  "fixed", "record",
                                                      "map",  "array",   "extension", "choice"};

[[noreturn]] void refuse(const Type& type, const std::string& what) {
  reject(FormatError::malformed, "the schema is invalid: a '", to_string(type.kind), "' ", what);
}

TypeKind read_kind(json::Reader& reader) {
  const auto name = reader.string();
  const auto at = std::ranges::find(kind_names, name);
  if (at == kind_names.end())
    reject(FormatError::unsupported, "the schema has the unknown kind " + json::describe(name));
  return static_cast<TypeKind>(at - kind_names.begin());
}

std::uint32_t read_small(json::Reader& reader, std::uint64_t most) {
  const std::uint64_t value = reader.integer();
  if (value > most) reader.fail(FormatError::malformed, "the number exceeds the maximum of ", most);
  return static_cast<std::uint32_t>(value);
}

// A node, and the number of its children, which follow it.
struct SchemaNode {
  Type type;
  std::uint64_t children = 0;
};

SchemaNode read_node(json::Reader& reader) {
  SchemaNode node;
  Type& type = node.type;
  reader.object([&](std::string_view key) {
    if (key == "kind") {
      type.kind = read_kind(reader);
    } else if (key == "length") {
      type.length = reader.integer();
    } else if (key == "nullable") {
      type.nullable = read_small(reader, 1) != 0;
    } else if (key == "scalar") {
      type.scalar = read_small(reader, 1) != 0;
    } else if (key == "name") {
      type.name = reader.string();
    } else if (key == "ndim") {
      type.ndim = read_small(reader, 64);
    } else if (key == "item_size") {
      type.item_size = read_small(reader, 1U << 16U);
    } else if (key == "fields") {
      reader.array([&] { type.fields.emplace_back(reader.string()); });
    } else if (key == "shapes") {
      reader.array([&] {
        auto& shape = type.shapes.emplace_back();
        reader.array([&] { shape.push_back(read_small(reader, UINT32_MAX)); });
      });
    } else if (key == "children") {
      node.children = reader.integer();
    } else {
      reader.skip();
    }
  });
  return node;
}

std::size_t expected_children(const Type& type, std::size_t found) {
  switch (type.kind) {
    case TypeKind::list:
    case TypeKind::tuple:
    case TypeKind::extension: return 1;
    case TypeKind::map: return 2;
    case TypeKind::record: return type.fields.size();
    case TypeKind::fixed: return found;
    case TypeKind::choice: return std::clamp<std::size_t>(found, 2, 127);  // the tags are I8
    default: return 0;
  }
}

void check_record(Type& type) {
  const std::unordered_set<std::string_view, SeededHash> names(type.fields.begin(), type.fields.end());
  if (names.size() != type.fields.size()) refuse(type, "has the same field twice");
  if (type.shapes.empty()) {
    auto& shape = type.shapes.emplace_back(type.fields.size());
    std::iota(shape.begin(), shape.end(), 0U);
  }
  std::vector<std::size_t> seen(type.fields.size(), 0);
  for (std::size_t number = 0; number < type.shapes.size(); ++number)
    for (const std::uint32_t field : type.shapes[number]) {
      if (field >= seen.size() || seen[field] == number + 1) refuse(type, "has a shape that does not match its fields");
      seen[field] = number + 1;
    }
}

void check(Type& type) {
  if (type.children.size() != expected_children(type, type.children.size()))
    refuse(type, concat("has the invalid number of ", type.children.size(), " children"));
  if (type.length > std::uint64_t{1} << 62U) refuse(type, "has an impossible length");
  if (type.nullable && (type.kind == TypeKind::choice || type.kind == TypeKind::null))
    refuse(type, "must not be nullable");
  if (type.kind == TypeKind::record) check_record(type);
  if (type.kind == TypeKind::array && (type.item_size == 0 || type.name.empty())) refuse(type, "has no dtype");
  const bool alike = type.kind == TypeKind::record || type.kind == TypeKind::fixed || type.kind == TypeKind::extension;
  for (const Type& child : type.children)
    if (alike && child.length != type.length)
      refuse(type, concat("has ", type.length, " values, but a child has ", child.length));
  if (type.kind == TypeKind::map && type.children[0].length != type.children[1].length)
    refuse(type, "has different numbers of keys and values");
}

// Removes a node and its children from the list.
Type build(std::span<SchemaNode>& nodes, std::size_t depth) {
  if (nodes.empty()) reject(FormatError::malformed, "the schema ends too early");
  if (depth > RecordSchema::deepest)
    reject(FormatError::too_costly, concat("the schema is nested more than ", RecordSchema::deepest, " deep"));
  SchemaNode& node = nodes.front();
  nodes = nodes.subspan(1);
  if (node.children > nodes.size()) reject(FormatError::malformed, "the schema ends too early");
  for (std::uint64_t i = 0; i < node.children; ++i) node.type.children.push_back(build(nodes, depth + 1));
  check(node.type);
  return std::move(node.type);
}

std::vector<SchemaNode> read_nodes(json::Reader& reader) {
  std::vector<SchemaNode> nodes;
  reader.array([&] {
    if (nodes.size() == RecordSchema::most_nodes)
      reject(FormatError::too_costly, "the schema has more than 100,000 nodes");
    nodes.push_back(read_node(reader));
  });
  return nodes;
}

RecordSchema read_schema(json::Reader& reader) {
  RecordSchema schema;
  std::vector<SchemaNode> nodes;
  reader.object([&](std::string_view key) {
    if (key == "container")
      schema.container = reader.string();
    else if (key == "types")
      nodes = read_nodes(reader);
    else
      reader.skip();
  });
  if (schema.container != "list" && schema.container != "dict")
    reject(FormatError::unsupported, "the schema has the unknown container " + json::describe(schema.container));
  std::span<SchemaNode> rest(nodes);
  schema.rows = build(rest, 1);
  if (!rest.empty()) reject(FormatError::malformed, "the schema has nodes without a parent");
  if (schema.container == "dict" && (schema.rows.kind != TypeKind::fixed || schema.rows.children.size() != 2))
    reject(FormatError::malformed, "the rows of a dict must be pairs");
  return schema;
}

template <class Items, class Write>
std::string list_of(const Items& items, const Write& write) {
  std::string text = "[";
  for (const auto& item : items) text += (text.size() > 1 ? "," : "") + write(item);
  return text + "]";
}

bool all_alike(const Type& type) {
  if (type.shapes.size() != 1 || type.shapes[0].size() != type.fields.size()) return false;
  return std::ranges::is_sorted(type.shapes[0]);
}

void write_node(const Type& type, std::string& text) {
  text += text.ends_with('[') ? "{" : ",{";
  text += "\"kind\":" + json::quoted(to_string(type.kind)) + ",\"length\":" + std::to_string(type.length);
  if (type.nullable) text += ",\"nullable\":1";
  if (!type.name.empty()) text += ",\"name\":" + json::quoted(type.name);
  if (type.kind == TypeKind::array)
    text += ",\"ndim\":" + std::to_string(type.ndim) + ",\"item_size\":" + std::to_string(type.item_size);
  if (type.scalar) text += ",\"scalar\":1";
  if (type.kind == TypeKind::record) {
    text += ",\"fields\":" + list_of(type.fields, [](const std::string& name) { return json::quoted(name); });
    if (!all_alike(type))
      text += ",\"shapes\":" + list_of(type.shapes, [](const auto& shape) {
                return list_of(shape, [](std::uint32_t field) { return std::to_string(field); });
              });
  }
  if (!type.children.empty()) text += ",\"children\":" + std::to_string(type.children.size());
  text += '}';
  for (const Type& child : type.children) write_node(child, text);
}

std::string escaped(std::string_view name) {
  std::string text;
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (c != '%' && c != '.' && c != '#' && byte >= 0x20 && byte != 0x7F) {
      text.push_back(c);
      continue;
    }
    std::array<char, 4> hex{};
    std::snprintf(hex.data(), hex.size(), "%%%02X", byte);
    text += hex.data();
  }
  return text;
}

}  // namespace

std::string_view to_string(TypeKind kind) noexcept { return kind_names[static_cast<std::size_t>(kind)]; }

std::string write_schema(const RecordSchema& schema) {
  std::string text = "{\"container\":" + json::quoted(schema.container) + ",\"types\":[";
  write_node(schema.rows, text);
  return text + "]}";
}

RecordSchema parse_record_schema(std::string_view metadata) {
  RecordSchema schema;
  std::list<std::string> unescaped;
  json::Reader reader(metadata, unescaped);
  reader.object([&](std::string_view key) {
    if (key == "schema")
      schema = read_schema(reader);
    else
      reader.skip();
  });
  reader.end();
  if (schema.container.empty()) reject(FormatError::malformed, "the schema does not name the container of the rows");
  return schema;
}

std::string buffer_name(std::string_view path, std::string_view buffer) {
  return std::string(path) + "." + std::string(buffer);
}

std::string child_name(const Type& parent, std::size_t child) {
  switch (parent.kind) {
    case TypeKind::record: return escaped(parent.fields[child]);
    case TypeKind::map: return child == 0 ? "key" : "value";
    case TypeKind::extension: return "storage";
    case TypeKind::list:
    case TypeKind::tuple: return "item";
    default: return std::to_string(child);
  }
}

std::string child_path(std::string_view path, const Type& parent, std::size_t child) {
  return std::string(path) + "." + child_name(parent, child);
}

}  // namespace onecopy::records
