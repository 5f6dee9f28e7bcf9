// The fields of an object, found and checked: used by every traversal of a value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "onecopy/structs/type.hpp"

namespace onecopy::structs {

struct PlacedField {
  std::string name;
  std::size_t offset;  // in the object
  const Type* type;
};

// Fields of a record; null: of a default object. Throws FormatError for a visit() that passes something other than a
// member of the object (a local variable, something behind a pointer), or a name that no path can have.
std::vector<PlacedField> fields_in(const Type& record, const void* object);

// Throws FormatError unless visit() lists the same fields for `object`: columns hold the same of each.
void expect_same_fields(const Type& record, const void* object, const std::vector<PlacedField>& expected,
                        const std::string& path);

std::string join(const std::string& path, const std::string& name);        // rank, blocks -> rank.blocks
std::string named(const std::string& path, std::string_view suffix = {});  // the root, which has no path, is "value"
std::string of_elements(const std::string& path, const Type& container);   // subs -> subs[]

// True for the path itself and for its fields: rank.blocks and rank are within rank; ranks is not.
bool is_within(std::string_view path, std::string_view part) noexcept;

// The type of a leaf as it stands in the schema, and the shape of one value.
std::string type_text(const Type& type);
std::vector<std::uint64_t> extents_of(const Type& fixed);
DType dtype_of(const Type& fixed);

// Throws FormatError where types are nested more than `deepest` deep.
void expect_depth(int depth, const std::string& path);

// a * b; throws FormatError where that is more than 2^64.
std::uint64_t times(std::uint64_t a, std::uint64_t b, const std::string& path);

// The elements of arrays that lie in their objects.
Places spread(const Type& array, const Places& places);

// The byte ranges of one value's fields, without its padding: (offset, length), merged. Throws FormatError for a member
// that alignas moved, which the schema cannot express.
struct Part {
  std::size_t offset;
  std::size_t length;
};
std::vector<Part> parts_of(const Type& fixed);

}  // namespace onecopy::structs
