// A node of the tree of types with its buffers: it locates and reads the values of one place in the data.
//
// The lengths of all buffers were compared with the schema when the file was opened, so a reader must only ensure `i <
// length`. The contents of buffers are not trusted: offsets, tags and shapes are checked with every read (FormatError),
// text may be any bytes. Buffers need not be aligned. Values of a null are unspecified. A Node does not own its bytes:
// the RecordFile or Gathered that it came from does, and must outlive it. Threads: any number may read.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "onecopy/base/bytes.hpp"
#include "onecopy/formats/record_schema.hpp"

namespace onecopy::records {

// Numbers of one width, side by side.
struct Numbers {
  const std::byte* first = nullptr;
  unsigned width = 0;  // bytes: 1, 2, 4, 8

  std::int64_t signed_at(std::uint64_t i) const noexcept {
    switch (width) {
      case 1: return load<std::int8_t>(i);
      case 2: return load<std::int16_t>(i);
      case 4: return load<std::int32_t>(i);
      default: return load<std::int64_t>(i);
    }
  }
  std::uint64_t unsigned_at(std::uint64_t i) const noexcept {
    switch (width) {
      case 1: return load<std::uint8_t>(i);
      case 2: return load<std::uint16_t>(i);
      case 4: return load<std::uint32_t>(i);
      default: return load<std::uint64_t>(i);
    }
  }
  template <class T>
  T load(std::uint64_t i) const noexcept {
    T value;  // NOLINT(cppcoreguidelines-init-variables): filled at once
    std::memcpy(&value, first + i * sizeof(T), sizeof value);
    return value;
  }
};

// Bits in Arrow's order: the lowest of each byte first. A missing buffer: every bit is 1.
struct Bits {
  const std::byte* first = nullptr;

  bool at(std::uint64_t i) const noexcept {
    return first == nullptr || ((std::to_integer<unsigned>(first[i / 8]) >> (i % 8)) & 1U) != 0;
  }
};

// The place of a node in the tree. Names are long and trees wide: it refers to the parent instead of holding the whole
// path.
struct NodePlace {
  std::shared_ptr<const NodePlace> above;  // none: the first node, and `root` is its name
  const Type* parent = nullptr;
  std::size_t child = 0;  // of the parent
  std::string root;

  std::string path() const;  // "records.0.bbox.item", with long names shortened: for errors
};

struct Node {
  TypeKind kind = TypeKind::null;
  std::uint64_t length = 0;  // values
  std::uint64_t items = 0;   // what `offsets` point into: items of the child or of `data`
  Bits validity;
  Bits bits;        // boolean: the values; number: which were ints
  Numbers data;     // integer, real, number; text, bytes, bigint, array: bytes
  Numbers offsets;  // length + 1 of them
  Numbers shape;    // record: the number of each row's shape; array: ndim extents each
  const std::byte* tags = nullptr;
  const Type* type = nullptr;  // fields, shapes, names
  std::shared_ptr<const NodePlace> place;
  std::vector<Node> children;

  std::string path() const { return place->path(); }

  bool null(std::uint64_t i) const noexcept { return !validity.at(i); }
  double real(std::uint64_t i) const noexcept { return data.load<double>(i); }

  struct Range {
    std::uint64_t begin, end;
    std::uint64_t size() const noexcept { return end - begin; }
  };

  // Of text, bytes, list, tuple, map, array: the range of items of value i.
  Range range(std::uint64_t i) const {
    const std::uint64_t begin = offsets.unsigned_at(i);
    const std::uint64_t end = offsets.unsigned_at(i + 1);
    if (begin > end || end > items) damaged(i);
    return {begin, end};
  }

  // The bytes of value i of text, bytes, bigint.
  std::string_view text(std::uint64_t i) const {
    const Range at = range(i);
    return {reinterpret_cast<const char*>(data.first) + at.begin, at.size()};  // NOLINT: bytes seen as text
  }

  // Of choice: the child that holds value i, and its position there.
  std::pair<const Node*, std::uint64_t> chosen(std::uint64_t i) const {
    const auto tag = std::to_integer<std::uint8_t>(tags[i]);
    if (tag >= children.size()) damaged(i);
    const std::uint64_t at = offsets.unsigned_at(i);
    if (at >= children[tag].length) damaged(i);
    return {&children[tag], at};
  }

  // Of record: the fields of value i, in its order.
  const std::vector<std::uint32_t>& fields(std::uint64_t i) const {
    const std::uint64_t number = shape.first == nullptr ? 0 : shape.unsigned_at(i);
    if (number >= type->shapes.size()) damaged(i);
    return type->shapes[number];
  }

  [[noreturn]] void damaged(std::uint64_t i) const;  // FormatError with path and number
};

}  // namespace onecopy::records
