// The fields of a file of kind "struct", from its metadata: paths and types, and the user's version.
//
// A StructSchema is a value. Pure functions: any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace onecopy {

struct StructSchema {
  std::uint32_t version = 0;                                // the user's
  std::vector<std::pair<std::string, std::string>> fields;  // path and type, in the order of the declaration

  // Null if there is no such path.
  const std::string* find(std::string_view path) const noexcept;
};

// Parses the text under __metadata__["onecopy"]. Throws FormatError: no schema, an unknown form, a repeated path.
StructSchema parse_struct_schema(std::string_view metadata);

// The text for LayoutOptions::schema.
std::string to_json(const StructSchema& schema, std::uint64_t hash);

}  // namespace onecopy
