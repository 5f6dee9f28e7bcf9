// A table that describes how a C++ type is stored. Every algorithm of the module (schema, save, open, byte_size) reads
// these tables, so that only the creation of a table is a template: type_of.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "onecopy/base/dtype.hpp"

namespace onecopy::structs {

enum class Form : std::uint8_t {
  number,    // one number
  opaque,    // bytes whose fields cannot be seen
  array,     // `count` elements in place
  record,    // named fields
  sequence,  // any number of elements, elsewhere
};

struct Type;

struct Field {
  std::string_view name;
  const Type* type;
};

// Receives the fields of an object. `name` is empty if visit() gave none.
class FieldSink {
 public:
  FieldSink() = default;
  FieldSink(const FieldSink&) = delete;
  FieldSink& operator=(const FieldSink&) = delete;
  virtual ~FieldSink() = default;
  virtual void field(std::string_view name, const void* address, const Type& type) = 0;
};

// Objects of one type: at equal distances, or anywhere.
struct Places {
  std::byte* first = nullptr;
  std::size_t stride = 0;
  std::uint64_t count = 0;
  std::shared_ptr<const std::vector<std::byte*>> anywhere;  // then `first` is not used
  std::size_t offset = 0;                                   // and this is added to each

  std::byte* operator[](std::uint64_t i) const { return anywhere ? (*anywhere)[i] + offset : first + i * stride; }

  // The field at this offset of each.
  Places shifted(std::size_t by) const {
    Places moved = *this;
    if (anywhere)
      moved.offset += by;
    else if (count != 0)  // without objects there is no first
      moved.first += by;
    return moved;
  }
};

// What can be done with a sequence, whatever its class.
struct SequenceOps {
  std::uint64_t (*count)(const void* sequence);
  const std::byte* (*items)(const void* sequence);
  // Owning classes: makes `count` elements and returns the first. Null for sequences that can refer to a mapping.
  std::byte* (*resize)(void* sequence, std::uint64_t count);
  // OwningSpan: sequence i is the items [offsets[i], offsets[i + 1]).
  void (*look)(const Places& sequences, const std::byte* items, const std::uint64_t* offsets,
               const std::shared_ptr<const void>& owner);
  std::shared_ptr<void> (*allocate)(std::uint64_t count);  // OwningSpan of elements that own memory
};

struct Type {
  Form form;
  bool fixed = false;        // its bytes are its value: copied or used in place
  bool text = false;         // sequence: std::string
  bool at_most_one = false;  // sequence: std::optional
  DType dtype = DType::u8;   // number
  std::size_t size = 0;
  std::size_t alignment = 1;
  const Type* element = nullptr;  // array, sequence
  std::uint64_t count = 0;        // array
  // Fields of a record; none: only visit() knows them.
  std::span<const Field> fields{};  // NOLINT(readability-redundant-member-init): gcc asks for it

  void (*visit)(const void* record, FieldSink& sink) = nullptr;  // record
  std::shared_ptr<void> (*make)() = nullptr;                     // record: a default one
  const SequenceOps* sequence = nullptr;
};

}  // namespace onecopy::structs
