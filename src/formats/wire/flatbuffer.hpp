// FlatBuffers read in place: tables, their fields, texts and vectors; no schema compiler, no copies.
//
// Every offset is checked against the buffer and for its alignment, every field against the length that its table gives
// itself, and every mistake is a FormatError with the byte where it stands. A buffer is a graph, not a tree: an offset
// can lead to what was read before, so a small file could keep a reader busy forever. Therefore each read costs its
// size, from a budget of a few times the buffer, and tables are `deepest` deep at most. Positions are those in the
// file, as the buffer begins where the file begins. https://flatbuffers.dev/internals/
#pragma once

#include <concepts>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "formats/work_budget.hpp"
#include "onecopy/base/bytes.hpp"
#include "onecopy/base/error.hpp"

namespace onecopy::flatbuffer {

inline constexpr int deepest = 128;        // tables inside each other
inline constexpr std::uint64_t times = 8;  // the budget, in sizes of the buffer

// The four letters after the first four bytes; empty where the first four cannot be the way to a root table.
std::string_view identifier(Bytes file) noexcept;

class Table;

// The whole buffer; it outlives the tables and vectors that refer to it, and does not move.
class Buffer {
 public:
  explicit Buffer(Bytes bytes);
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() = default;

  Table root();

  // Subtracts from the budget; throws FormatError if nothing is left, because the buffer refers to the same parts
  // repeatedly.
  void spend(std::uint64_t cost) { budget_.spend(cost); }

 private:
  friend class Table;
  friend class Vector;

  struct Found {
    std::uint64_t begin = 0;  // of the first element
    std::uint32_t count = 0;
  };

  std::uint64_t number(std::uint64_t at, unsigned bytes) const;
  std::uint64_t follow(std::uint64_t at) const;
  Table table_at(std::uint64_t at, int depth);
  Found vector_at(std::uint64_t at, unsigned element) const;
  std::string_view text_at(std::uint64_t at);
  template <class... Parts>
  [[noreturn]] static void fail(FormatError::Kind kind, std::uint64_t at, const Parts&... what) {
    throw FormatError(kind, concat("flatbuffer: ", what..., ", at byte ", at), at);
  }

  template <std::integral Number>
  Number number_at(std::uint64_t at) const {
    const std::uint64_t value = number(at, sizeof(Number));
    if constexpr (std::same_as<Number, bool>)
      return value != 0;
    else
      return static_cast<Number>(static_cast<std::make_unsigned_t<Number>>(value));
  }

  Bytes bytes_;
  WorkBudget budget_;
};

// Elements of one size: numbers, or offsets of tables or texts. One that is absent is empty.
class Vector {
 public:
  Vector() noexcept = default;

  std::uint32_t size() const noexcept { return found_.count; }
  ByteRange range() const noexcept { return {found_.begin, std::uint64_t{found_.count} * element_}; }

  // Need i < size(), and the size of element that the vector was asked for with.
  Table table(std::uint32_t i) const;
  std::string_view text(std::uint32_t i) const;
  template <std::integral Number>
  Number number(std::uint32_t i) const {
    buffer_->spend(sizeof(Number));
    return buffer_->number_at<Number>(found_.begin + std::uint64_t{i} * sizeof(Number));
  }

  // All numbers; none if one of them is negative.
  template <std::signed_integral Number>
  std::optional<std::vector<std::uint64_t>> extents() const {
    std::vector<std::uint64_t> extents;
    for (std::uint32_t i = 0; i < size(); ++i) {
      const auto extent = number<Number>(i);
      if (extent < 0) return std::nullopt;
      extents.push_back(static_cast<std::uint64_t>(extent));
    }
    return extents;
  }

 private:
  friend class Table;
  Vector(Buffer& buffer, Buffer::Found found, unsigned element, int depth) noexcept
      : buffer_(&buffer), found_(found), element_(element), depth_(depth) {}

  Buffer* buffer_ = nullptr;
  Buffer::Found found_;
  unsigned element_ = 1;
  int depth_ = 0;
};

// Fields go by their number in the schema, from 0; a union has two: its type, and then the table.
class Table {
 public:
  template <std::integral Number>
  Number number(unsigned field, Number otherwise = 0) const {
    const auto at = find(field, sizeof(Number));
    return at ? buffer_->number_at<Number>(*at) : otherwise;
  }

  std::optional<Table> table(unsigned field) const;
  std::string_view text(unsigned field) const;  // UTF-8; empty where absent
  Vector vector(unsigned field, unsigned element) const;
  Vector offsets(unsigned field) const { return vector(field, 4); }

 private:
  friend class Buffer;
  Table(Buffer& buffer, std::uint64_t at, int depth);

  // Where the field stands; none: it has its default.
  std::optional<std::uint64_t> find(unsigned field, unsigned bytes) const;

  Buffer* buffer_;
  std::uint64_t at_;
  int depth_;
  std::uint64_t vtable_ = 0;
  std::uint16_t vtable_size_ = 0;
  std::uint16_t size_ = 0;
};

}  // namespace onecopy::flatbuffer
