#include "records/arrow/arrow_form.hpp"

#include <array>
#include <string_view>
#include <utility>

#include "formats/wire/json.hpp"
#include "onecopy/base/error.hpp"
#include "onecopy/base/interrupt.hpp"
#include "onecopy/records/arrow.hpp"

namespace onecopy::records {
namespace {

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

}  // namespace

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
