// The form of a type in a file: its leaves, each with a path and a type, and a hash of both.
//
//     seed                    U64
//     rank.blocks             U64[]             any number of them
//     nodes                   {key:U32,next:U32}[]    plain structs
//     names[]                 text              a sequence of strings
//     subs[].words            U64[]             the words of each element of `subs`
//     limit                   F32?              std::optional
//
// `static_assert(onecopy::schema_hash<Index>() == 0x...)` freezes a format: it no longer compiles after a field was
// renamed, moved or retyped. A Schema is a value. Threads: any.
#pragma once

#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "onecopy/structs/type_of.hpp"

namespace onecopy {

struct SchemaField {
  std::string path;
  std::string type;

  friend bool operator==(const SchemaField&, const SchemaField&) = default;
};

class Schema {
 public:
  Schema() = default;
  explicit Schema(std::vector<SchemaField> fields) noexcept : fields_(std::move(fields)) {}

  std::span<const SchemaField> fields() const& noexcept ONECOPY_LIFETIMEBOUND { return fields_; }
  std::span<const SchemaField> fields() const&& = delete;

  // 64-bit FNV-1a of the lines "path:type". Equal schemas have equal hashes; not cryptographic.
  std::uint64_t hash() const noexcept;

  friend bool operator==(const Schema&, const Schema&) = default;

 private:
  std::vector<SchemaField> fields_;
};

// A line for each field.
std::string to_string(const Schema& schema);

namespace structs {

inline constexpr std::string_view root_path = "value";  // the path of a saved value without fields
inline constexpr int deepest = 32;                      // types nested in each other

// Characters one after the other, for building and for hashing.
template <class Sink>
constexpr void write_text(Sink& sink, std::string_view text) {
  for (const char c : text) sink(c);
}

template <class Sink>
constexpr void write_number(Sink& sink, std::uint64_t number) {
  if (number >= 10) write_number(sink, number / 10);
  sink(static_cast<char>('0' + number % 10));
}

constexpr bool has_extent(const Type& type) noexcept {
  return type.form == Form::array || (type.form == Form::sequence && !type.text);
}

// "[]", "[4]", "?": the number of elements of a sequence or an array.
template <class Sink>
constexpr void write_extent(Sink& sink, const Type& type) {
  if (type.form == Form::array) {
    sink('[');
    write_number(sink, type.count);
    sink(']');
  } else {
    write_text(sink, type.at_most_one ? "?" : "[]");
  }
}

// The type of a leaf, with extents as in a C declaration: F64[2][3].
template <class Sink>
constexpr void write_type(Sink& sink, const Type& type) {
  if (type.form == Form::number) return write_text(sink, to_string(type.dtype));
  if (type.text) return write_text(sink, "text");
  if (type.form == Form::opaque) {
    write_text(sink, "bytes(");
    write_number(sink, type.size);
    return sink(')');
  }
  if (type.form == Form::record) {
    sink('{');
    for (std::size_t i = 0; i < type.fields.size(); ++i) {
      if (i != 0) sink(',');
      write_text(sink, type.fields[i].name);
      sink(':');
      write_type(sink, *type.fields[i].type);
    }
    return sink('}');
  }
  const Type* base = &type;
  while (has_extent(*base)) base = base->element;
  write_type(sink, *base);
  for (const Type* part = &type; has_extent(*part); part = part->element) write_extent(sink, *part);
}

// A path is a linked list from its end: a field, and the parent's path.
struct PathPart {
  const PathPart* parent = nullptr;
  std::string_view name{};  // NOLINT(readability-redundant-member-init): gcc asks for it
  bool is_name = true;
  const Type* elements = nullptr;  // if it has no name: the elements of this sequence or array
};

template <class Sink>
constexpr void write_path(Sink& sink, const PathPart& part) {
  if (part.parent != nullptr) write_path(sink, *part.parent);
  if (part.is_name) {
    if (part.parent != nullptr) sink('.');
    write_text(sink, part.name);
  } else {
    write_extent(sink, *part.elements);
  }
}

// True for a type that is one leaf.
constexpr bool is_leaf(const Type& type) noexcept {
  if (type.form == Form::record) return false;
  return type.fixed || (type.form == Form::sequence && type.element->fixed);
}

struct Fnv {
  std::uint64_t state = 0xcbf29ce484222325U;
  constexpr void operator()(char c) noexcept { state = (state ^ static_cast<unsigned char>(c)) * 0x100000001b3U; }
};

// Only if the fields are known without an object.
constexpr void hash_type(Fnv& hash, const Type& type, const PathPart* path) {
  if (is_leaf(type)) {
    write_path(hash, path != nullptr ? *path : PathPart{.name = root_path});
    hash(':');
    write_type(hash, type);
    hash('\n');
  } else if (type.form == Form::record) {
    if (type.fields.empty())
      throw std::logic_error("the fields of this type are known to its visit() only: call schema<T>() at run time");
    for (const Field& field : type.fields) {
      const PathPart part{.parent = path, .name = field.name};
      hash_type(hash, *field.type, &part);
    }
  } else {
    const PathPart root{.name = root_path};
    const PathPart part{.parent = path != nullptr ? path : &root, .is_name = false, .elements = &type};
    hash_type(hash, *type.element, &part);
  }
}

// `path`: of the value, if it is a part of another.
Schema schema_of(const Type& type, const void* value, const std::string& path = {});

}  // namespace structs

// The schema of a value, or of a default one.
template <class T>
Schema schema(const T& value) {
  return structs::schema_of(structs::type_of<T>, &value);
}
template <class T>
  requires std::default_initializable<T>
Schema schema() {
  return schema(T{});
}

// As schema<T>().hash(), at compile time: for aggregates at every level.
template <class T>
consteval std::uint64_t schema_hash() {
  structs::Fnv hash;
  structs::hash_type(hash, structs::type_of<T>, nullptr);
  return hash.state;
}

}  // namespace onecopy
