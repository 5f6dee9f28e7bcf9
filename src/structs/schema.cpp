#include "onecopy/structs/schema.hpp"

#include <algorithm>

#include "onecopy/base/error.hpp"
#include "structs/walk.hpp"

namespace onecopy {
namespace {

using structs::Form;
using structs::Type;

void list(const Type& type, const void* object, const std::string& path, int depth, std::vector<SchemaField>& fields) {
  structs::expect_depth(depth, path);
  if (structs::is_leaf(type)) {
    fields.push_back({structs::named(path), structs::type_text(type)});
  } else if (type.form == Form::record) {
    for (const auto& field : structs::fields_in(type, object))
      list(*field.type, object == nullptr ? nullptr : static_cast<const std::byte*>(object) + field.offset,
           structs::join(path, field.name), depth + 1, fields);
  } else {
    list(*type.element, nullptr, structs::of_elements(path, type), depth + 1, fields);
  }
}

}  // namespace

std::uint64_t Schema::hash() const noexcept {
  structs::Fnv hash;
  for (const auto& field : fields_) {
    structs::write_text(hash, field.path);
    hash(':');
    structs::write_text(hash, field.type);
    hash('\n');
  }
  return hash.state;
}

std::string to_string(const Schema& schema) {
  std::size_t widest = 0;
  for (const auto& field : schema.fields()) widest = std::max(widest, field.path.size());
  std::string text;
  for (const auto& field : schema.fields())
    text += field.path + std::string(widest + 2 - field.path.size(), ' ') + field.type + "\n";
  return text;
}

namespace structs {

Schema schema_of(const Type& type, const void* value, const std::string& path) {
  std::vector<SchemaField> fields;
  list(type, value, path, 0, fields);
  return Schema(std::move(fields));
}

}  // namespace structs
}  // namespace onecopy
