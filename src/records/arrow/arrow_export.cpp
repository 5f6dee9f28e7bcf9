#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/wire/json.hpp"
#include "onecopy/base/error.hpp"
#include "onecopy/base/interrupt.hpp"
#include "onecopy/records/arrow.hpp"

namespace onecopy::records {
namespace {

// A node in Arrow's terms: format, buffers and children, from which both structs of an export are made.
struct ArrowForm {
  std::string name;
  std::string format;
  std::string extension;  // the name of its type, for metadata; empty: none
  bool nullable = false;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  std::vector<const void*> buffers;  // the first is the validity, where the format has one
  std::vector<ArrowForm> children;
};

// Values [start, start + length).
ArrowForm arrow_form(const Node& node, std::string name, std::uint64_t start, std::uint64_t length);

using Forms = std::vector<ArrowForm>;

const void* validity(const Node& node) noexcept { return node.validity.first; }

// Complete buffers: those that offsets point into.
ArrowForm child(const Node& node, std::string name) { return arrow_form(node, std::move(name), 0, node.length); }

const char* wide(const Node& node, const char* narrow_format, const char* wide_format) noexcept {
  return node.offsets.width == 4 ? narrow_format : wide_format;
}

// Arrow's letter for an element type of numpy; none: bytes of fixed length.
std::string element_format(const Type& type) {
  struct Element {
    std::string_view numpy;
    const char* arrow;
  };
  static constexpr std::array<Element, 11> elements{{{"i1", "c"},
                                                     {"u1", "C"},
                                                     {"i2", "s"},
                                                     {"u2", "S"},
                                                     {"i4", "i"},
                                                     {"u4", "I"},
                                                     {"i8", "l"},
                                                     {"u8", "L"},
                                                     {"f2", "e"},
                                                     {"f4", "f"},
                                                     {"f8", "g"}}};
  std::string_view name = type.name;
  if (name.starts_with('<') || name.starts_with('|')) name.remove_prefix(1);
  for (const Element& element : elements)
    if (name == element.numpy && std::cmp_equal(type.item_size, name[1] - '0')) return element.arrow;
  return "w:" + std::to_string(type.item_size);
}

ArrowForm leaf(std::string name, std::string format, std::uint64_t length, std::vector<const void*> buffers) {
  return {std::move(name), std::move(format), "", false, 0, length, std::move(buffers), {}};
}

// A struct of columns that have the same rows: without nulls of its own, a slice of it is a slice of each.
void set_struct(const Node& node, ArrowForm& form, std::uint64_t start) {
  form.format = "+s";
  form.buffers = {validity(node)};
  const bool whole = node.validity.first != nullptr;
  if (!whole) form.offset = 0;
  for (std::size_t i = 0; i < node.children.size(); ++i) {
    const Node& column = node.children[i];
    form.children.push_back(whole ? child(column, "") : arrow_form(column, "", start, form.length));
    form.children.back().name = node.kind == TypeKind::record ? node.type->fields[i] : std::to_string(i);
  }
}

// Arrow's map has narrow offsets and keys that are never null; others are lists of structs.
void set_map(const Node& node, ArrowForm& form) {
  const Node& keys = node.children[0];
  const bool null_keys = validity(keys) != nullptr || keys.kind == TypeKind::choice || keys.kind == TypeKind::null;
  form.format = null_keys || node.offsets.width != 4 ? wide(node, "+l", "+L") : "+m";
  form.buffers = {validity(node), node.offsets.first};
  ArrowForm entries = leaf("entries", "+s", node.items, {nullptr});
  entries.children = Forms{child(keys, "key"), child(node.children[1], "value")};
  form.children.push_back(std::move(entries));
}

void set_array(const Node& node, ArrowForm& form, std::uint64_t start) {
  const ArrowForm items = leaf("item", element_format(*node.type), node.items, {nullptr, node.data.first});
  form.format = wide(node, "+l", "+L");
  form.buffers = {validity(node), node.offsets.first};
  form.children = {items};
  if (node.type->ndim == 1 || node.type->ndim == 0) return;
  ArrowForm values = form;
  values.name = "values";
  values.nullable = false;
  values.buffers[0] = nullptr;
  ArrowForm shape = leaf("shape", "+w:" + std::to_string(node.type->ndim), form.length, {nullptr});
  shape.offset = start;
  shape.children = {leaf("item", "L", node.length * node.type->ndim, {nullptr, node.shape.first})};
  form.format = "+s";
  form.buffers = {validity(node)};
  if (validity(node) != nullptr) {  // the struct's own offset is added to that of its columns
    values.offset = shape.offset = 0;
    values.length = shape.length = node.length;
  } else {
    form.offset = 0;
  }
  form.children = {values, shape};
}

void set_choice(const Node& node, ArrowForm& form) {
  if (node.offsets.width != 4)
    reject(FormatError::unsupported, "'" + node.path() + "': Arrow has no unions of more than 2^31 values");
  form.format = "+ud:";
  for (std::size_t i = 0; i < node.children.size(); ++i) {
    form.format += (i == 0 ? "" : ",") + std::to_string(i);
    form.children.push_back(child(node.children[i], std::to_string(i)));
  }
  form.nullable = true;
  form.buffers = {node.tags, node.offsets.first};
}

void set_bytes(const Node& node, ArrowForm& form) {
  form.format = node.kind == TypeKind::text ? wide(node, "u", "U") : wide(node, "z", "Z");
  form.buffers = {validity(node), node.offsets.first, node.data.first};
}

// The plain values, under the name of the type. A null object has a null plain value, but not every storage type can
// express that.
void set_extension(const Node& node, ArrowForm& form, std::uint64_t start) {
  const Node& storage = node.children[0];
  const std::uint64_t length = form.length;
  std::string name = std::move(form.name);
  const bool silent =
      validity(storage) == nullptr && storage.kind != TypeKind::null && storage.kind != TypeKind::choice;
  if (silent && validity(node) != nullptr) {
    form = arrow_form(storage, std::move(name), 0, storage.length);  // whole: a validity begins at value 0
    form.offset = start;
    form.length = length;
    form.buffers[0] = validity(node);
    form.nullable = true;
  } else {
    form = arrow_form(storage, std::move(name), start, length);
  }
  form.extension = "onecopy." + node.type->name;
}

const char* integer_format(unsigned width) noexcept {
  switch (width) {
    case 1: return "c";
    case 2: return "s";
    case 4: return "i";
    default: return "l";
  }
}

bool on_own_size(const Numbers& numbers) noexcept {
  return numbers.width < 2 || reinterpret_cast<std::uintptr_t>(numbers.first) % numbers.width == 0;  // NOLINT
}

template <class Check>
void check_values(const Node& node, const Check& check_value) {
  constexpr std::uint64_t between_polls = std::uint64_t{1} << 14U;
  for (std::uint64_t i = 0; i < node.length; ++i) {
    if (i % between_polls == 0) poll_interrupt();
    check_value(i);
  }
}

ArrowForm arrow_form(const Node& node, std::string name, std::uint64_t start, std::uint64_t length) {
  ArrowForm form = leaf(std::move(name), "", length, {});
  form.offset = start;
  form.nullable = validity(node) != nullptr;
  switch (node.kind) {
    case TypeKind::null:
      form.format = "n";
      form.nullable = true;
      break;
    case TypeKind::boolean:
      form.format = "b";
      form.buffers = {validity(node), node.bits.first};
      break;
    case TypeKind::integer:
    case TypeKind::real:
    case TypeKind::number:
      form.format = node.kind == TypeKind::integer ? integer_format(node.data.width) : "g";
      form.buffers = {validity(node), node.data.first};
      break;
    case TypeKind::bigint: form.extension = "onecopy.int"; [[fallthrough]];
    case TypeKind::text:
    case TypeKind::bytes: set_bytes(node, form); break;
    case TypeKind::list:
    case TypeKind::tuple:
      form.format = wide(node, "+l", "+L");
      form.buffers = {validity(node), node.offsets.first};
      form.children.push_back(child(node.children[0], "item"));
      break;
    case TypeKind::fixed:
    case TypeKind::record: set_struct(node, form, start); break;
    case TypeKind::map: set_map(node, form); break;
    case TypeKind::array: set_array(node, form, start); break;
    case TypeKind::extension: set_extension(node, form, start); break;
    case TypeKind::choice: set_choice(node, form); break;
  }
  return form;
}

// Arrow's children are released one by one, in any order, also by a consumer that moved them out of their parent: so
// each owns everything it needs, and a share of the owner.
struct SchemaParts {
  std::string name, format, metadata;
  std::vector<ArrowSchema> children;
  std::vector<ArrowSchema*> pointers;
};

struct ArrayParts {
  std::shared_ptr<const void> owner;
  std::vector<const void*> buffers;
  std::vector<ArrowArray> children;
  std::vector<ArrowArray*> pointers;
};

template <class Struct, class Parts>
void release(Struct* self) noexcept {
  for (std::int64_t i = 0; i < self->n_children; ++i)
    if (self->children[i]->release != nullptr) self->children[i]->release(self->children[i]);
  delete static_cast<Parts*>(self->private_data);  // NOLINT(cppcoreguidelines-owning-memory): made below
  self->release = nullptr;
}

void append_number(std::string& text, std::size_t number) {
  const auto value = static_cast<std::int32_t>(number);
  char bytes[sizeof value];  // NOLINT(modernize-avoid-c-arrays)
  std::memcpy(bytes, &value, sizeof value);
  text.append(bytes, sizeof value);
}

// Arrow's own encoding: how many pairs, then key and value of each behind their lengths.
std::string metadata_of(const std::string& extension) {
  static constexpr std::string_view key = "ARROW:extension:name";
  std::string text;
  append_number(text, 1);
  append_number(text, key.size());
  text += key;
  append_number(text, extension.size());
  return text + extension;
}

ArrowSchema schema_of(const ArrowForm& form) {
  auto parts = std::make_unique<SchemaParts>();
  parts->name = form.name;
  parts->format = form.format;
  if (!form.extension.empty()) parts->metadata = metadata_of(form.extension);
  parts->children.reserve(form.children.size());
  for (const ArrowForm& child : form.children) parts->children.push_back(schema_of(child));
  for (ArrowSchema& child : parts->children) parts->pointers.push_back(&child);
  ArrowSchema schema{.format = parts->format.c_str(),
                     .name = parts->name.c_str(),
                     .metadata = parts->metadata.empty() ? nullptr : parts->metadata.data(),
                     .flags = form.nullable ? 2 : 0,
                     .n_children = static_cast<std::int64_t>(parts->children.size()),
                     .children = parts->pointers.data(),
                     .dictionary = nullptr,
                     .release = &release<ArrowSchema, SchemaParts>,
                     .private_data = nullptr};
  schema.private_data = parts.release();
  return schema;
}

ArrowArray array_of(const ArrowForm& form, const std::shared_ptr<const void>& owner) {
  auto parts = std::make_unique<ArrayParts>();
  parts->owner = owner;
  parts->buffers = form.buffers;
  parts->children.reserve(form.children.size());
  for (const ArrowForm& child : form.children) parts->children.push_back(array_of(child, owner));
  for (ArrowArray& child : parts->children) parts->pointers.push_back(&child);
  const bool never_null = !form.nullable || form.format.starts_with("+u");
  const std::int64_t nulls = form.format == "n" ? static_cast<std::int64_t>(form.length) : never_null ? 0 : -1;
  ArrowArray array{.length = static_cast<std::int64_t>(form.length),
                   .null_count = nulls,
                   .offset = static_cast<std::int64_t>(form.offset),
                   .n_buffers = static_cast<std::int64_t>(parts->buffers.size()),
                   .n_children = static_cast<std::int64_t>(parts->children.size()),
                   .buffers = parts->buffers.data(),
                   .children = parts->pointers.data(),
                   .dictionary = nullptr,
                   .release = &release<ArrowArray, ArrayParts>,
                   .private_data = nullptr};
  array.private_data = parts.release();
  return array;
}

struct Batch {
  ArrowForm form;
  std::shared_ptr<const void> owner;
  bool given = false;
};

Batch& batch_of(const ArrowArrayStream* stream) noexcept { return *static_cast<Batch*>(stream->private_data); }

// NOLINTBEGIN(misc-const-correctness): Arrow's signatures
int get_schema(ArrowArrayStream* stream, ArrowSchema* out) noexcept {
  try {
    *out = schema_of(batch_of(stream).form);
    return 0;
  } catch (...) {
    return ENOMEM;  // nothing else is left to fail
  }
}

int get_next(ArrowArrayStream* stream, ArrowArray* out) noexcept {
  try {
    Batch& batch = batch_of(stream);
    *out = ArrowArray{};  // released: the end
    if (!batch.given) *out = array_of(batch.form, batch.owner);
    batch.given = true;
    return 0;
  } catch (...) {
    return ENOMEM;
  }
}

// NOLINTEND(misc-const-correctness)
const char* get_last_error(ArrowArrayStream* /*stream*/) noexcept { return nullptr; }

void release_stream(ArrowArrayStream* stream) noexcept {
  delete &batch_of(stream);
  stream->release = nullptr;
}

}  // namespace

void export_schema(const Node& node, ArrowSchema& out) { out = schema_of(arrow_form(node, "", 0, 0)); }

void export_array(const Node& node, std::uint64_t start, std::uint64_t length, const std::shared_ptr<const void>& owner,
                  ArrowArray& out) {
  out = array_of(arrow_form(node, "", start, length), owner);
}

void export_stream(const Node& node, std::uint64_t start, std::uint64_t length, std::shared_ptr<const void> owner,
                   ArrowArrayStream& out) {
  auto batch = std::make_unique<Batch>(Batch{arrow_form(node, "", start, length), std::move(owner)});
  out = {get_schema, get_next, get_last_error, release_stream, nullptr};
  out.private_data = batch.release();
}

void check(const Node& node) {
  if (node.kind == TypeKind::text)
    check_values(node, [&](std::uint64_t i) {
      if (!node.null(i) && !json::is_utf8(node.text(i))) node.damaged(i);
    });
  if (node.kind == TypeKind::choice)
    check_values(node, [&](std::uint64_t i) { (void)node.chosen(i); });
  else if (node.offsets.first != nullptr)
    check_values(node, [&](std::uint64_t i) { (void)node.range(i); });
  for (const Node& child : node.children) check(child);
}

bool is_aligned(const Node& node) noexcept {
  // Elements of arrays are handled as bytes here and as their own type by consumers.
  const bool elements = node.kind != TypeKind::array || on_own_size({node.data.first, 8});
  if (!on_own_size(node.data) || !on_own_size(node.offsets) || !on_own_size(node.shape) || !elements) return false;
  for (const Node& child : node.children)
    if (!is_aligned(child)) return false;
  return true;
}

}  // namespace onecopy::records
