// A FlatBuffer as the tests want it: a tree of tables, laid out from its root on, so that every offset leads forward.
//
// Simpler than the library: no vtable is shared, nothing is left out because it has its default.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace flatbuffer_test {

class Built;

class TableOf {
 public:
  template <class Number>
  TableOf& number(unsigned field, Number value) {
    std::string bytes(sizeof(value), '\0');
    std::memcpy(bytes.data(), &value, sizeof(value));
    fields_.push_back({field, std::move(bytes), {}});
    return *this;
  }
  TableOf& text(unsigned field, std::string value);
  TableOf& bytes(unsigned field, std::string value, unsigned alignment = 1);
  TableOf& table(unsigned field, TableOf value);
  TableOf& tables(unsigned field, std::vector<TableOf> values);
  TableOf& texts(unsigned field, std::vector<std::string> values);

  template <class Number>
  TableOf& numbers(unsigned field, const std::vector<Number>& values) {
    std::string bytes(values.size() * sizeof(Number), '\0');
    if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
    return vector(field, std::move(bytes), sizeof(Number));
  }

 private:
  friend class Built;
  using Write = std::function<std::size_t(Built&)>;  // gives where it lies
  struct Field {
    unsigned number;
    std::string scalar;  // or what the offset leads to:
    Write write;
  };

  TableOf& vector(unsigned field, std::string bytes, std::size_t element);

  std::vector<Field> fields_;
};

// The bytes, growing.
class Built {
 public:
  std::string bytes;

  void align(std::size_t to, std::size_t ahead = 0) {
    while ((bytes.size() + ahead) % to != 0) bytes.push_back('\0');
  }

  template <class Number>
  void put(Number value) {
    const auto at = bytes.size();
    bytes.resize(at + sizeof(value));
    std::memcpy(bytes.data() + at, &value, sizeof(value));
  }

  void point(std::size_t from, std::size_t to) {
    const auto offset = static_cast<std::uint32_t>(to - from);
    std::memcpy(bytes.data() + from, &offset, sizeof(offset));
  }

  std::size_t vector(std::string_view content, std::size_t element, bool has_zero = false) {
    align(element < 4 ? 4 : element, 4);
    const auto at = bytes.size();
    put(static_cast<std::uint32_t>(content.size() / element));
    bytes += content;
    if (has_zero) bytes.push_back('\0');
    return at;
  }

  // Offsets to what these write, one after the other.
  std::size_t offsets(const std::vector<TableOf::Write>& targets) {
    align(4);
    const auto at = bytes.size();
    put(static_cast<std::uint32_t>(targets.size()));
    const auto first = bytes.size();
    bytes.resize(first + 4 * targets.size());
    for (std::size_t i = 0; i < targets.size(); ++i) point(first + 4 * i, targets[i](*this));
    return at;
  }

  // Every scalar gets eight bytes.
  std::size_t table(const TableOf& content) {
    unsigned slots = 0;
    for (const auto& field : content.fields_) slots = field.number + 1 > slots ? field.number + 1 : slots;
    std::vector<std::uint16_t> places(slots);
    std::uint16_t size = 8;
    for (const auto& field : content.fields_) {
      places[field.number] = size;
      size = static_cast<std::uint16_t>(size + 8);
    }
    align(2);
    const auto vtable = bytes.size();
    put(static_cast<std::uint16_t>(4 + 2 * slots));
    put(size);
    for (const auto place : places) put(place);
    align(8);
    const auto at = bytes.size();
    put(static_cast<std::int32_t>(at - vtable));
    bytes.resize(at + size);
    for (const auto& field : content.fields_)
      std::memcpy(&bytes[at + places[field.number]], field.scalar.data(), field.scalar.size());
    for (const auto& field : content.fields_)
      if (field.write) point(at + places[field.number], field.write(*this));
    return at;
  }
};

inline TableOf& TableOf::vector(unsigned field, std::string bytes, std::size_t element) {
  fields_.push_back(
      {field, {}, [content = std::move(bytes), element](Built& built) { return built.vector(content, element); }});
  return *this;
}

inline TableOf& TableOf::text(unsigned field, std::string value) {
  fields_.push_back({field, {}, [content = std::move(value)](Built& built) { return built.vector(content, 1, true); }});
  return *this;
}

inline TableOf& TableOf::bytes(unsigned field, std::string value, unsigned alignment) {
  fields_.push_back({field, {}, [content = std::move(value), alignment](Built& built) {
                       built.align(alignment, 4);
                       return built.vector(content, 1);
                     }});
  return *this;
}

inline TableOf& TableOf::table(unsigned field, TableOf value) {
  fields_.push_back({field, {}, [content = std::move(value)](Built& built) { return built.table(content); }});
  return *this;
}

inline TableOf& TableOf::tables(unsigned field, std::vector<TableOf> values) {
  std::vector<Write> targets;
  for (auto& value : values)
    targets.emplace_back([content = std::move(value)](Built& built) { return built.table(content); });
  fields_.push_back({field, {}, [targets = std::move(targets)](Built& built) { return built.offsets(targets); }});
  return *this;
}

inline TableOf& TableOf::texts(unsigned field, std::vector<std::string> values) {
  std::vector<Write> targets;
  for (auto& value : values)
    targets.emplace_back([content = std::move(value)](Built& built) { return built.vector(content, 1, true); });
  fields_.push_back({field, {}, [targets = std::move(targets)](Built& built) { return built.offsets(targets); }});
  return *this;
}

// A file: the offset of the root, four letters, what stands behind them, and the tables, padded to whole eights.
inline std::string file_of(const TableOf& root, std::string_view identifier, std::string_view header = {}) {
  Built built;
  built.put(std::uint32_t{0});
  built.bytes += identifier;
  built.bytes += header;
  built.align(8);
  built.point(0, built.table(root));
  built.align(8);
  return built.bytes;
}

}  // namespace flatbuffer_test
