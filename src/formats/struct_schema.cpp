#include "onecopy/formats/struct_schema.hpp"

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cstdio>
#include <list>
#include <unordered_set>

#include "base/seeded_hash.hpp"
#include "formats/wire/json.hpp"
#include "onecopy/base/error.hpp"

namespace onecopy {
namespace {

void read_fields(json::Reader& reader, StructSchema& schema) {
  std::unordered_set<std::string, SeededHash> paths;
  reader.object([&](std::string_view path) {
    if (!paths.emplace(path).second)
      reject(FormatError::inconsistent, "the schema names " + json::describe(path) + " twice");
    schema.fields.emplace_back(path, std::string());
    schema.fields.back().second = reader.string();
  });
}

bool read_schema(json::Reader& reader, StructSchema& schema) {
  bool found = false;
  reader.object([&](std::string_view key) {
    if (key == "version") {
      const std::uint64_t version = reader.integer();
      if (version > UINT32_MAX) reject(FormatError::unsupported, "the version of the schema does not fit into 32 bits");
      schema.version = static_cast<std::uint32_t>(version);
    } else if (key == "fields") {
      read_fields(reader, schema);
      found = true;
    } else {
      reader.skip();
    }
  });
  return found;
}

}  // namespace

const std::string* StructSchema::find(std::string_view path) const noexcept {
  const auto at = std::ranges::find(fields, path, [](const auto& field) -> std::string_view { return field.first; });
  return at == fields.end() ? nullptr : &at->second;
}

StructSchema parse_struct_schema(std::string_view metadata) {
  StructSchema schema;
  bool found = false;
  std::list<std::string> unescaped;
  json::Reader reader(metadata, unescaped);
  reader.object([&](std::string_view key) {
    if (key == "schema" && !found)
      found = read_schema(reader, schema);
    else
      reader.skip();
  });
  reader.end();
  if (!found) reject(FormatError::malformed, "the schema has no list of fields");
  return schema;
}

std::string to_json(const StructSchema& schema, std::uint64_t hash) {
  std::array<char, 17> digits{};
  std::snprintf(digits.data(), digits.size(), "%016" PRIx64, hash);
  std::string text =
      "{\"version\":" + std::to_string(schema.version) + ",\"hash\":\"" + digits.data() + "\",\"fields\":{";
  for (const auto& [path, type] : schema.fields)
    text += (text.ends_with('{') ? "" : ",") + json::quoted(path) + ":" + json::quoted(type);
  return text + "}}";
}

}  // namespace onecopy
