// A FlatBuffer as the tests want it: a tree of tables, laid out from its root on, so that every offset leads forward.
//
// Simpler than the library: no vtable is shared, nothing is left out because it has its default, and every scalar gets
// eight bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace flatbuffer_test {

// The bytes, growing.
class Built {
 public:
  using Write = std::function<std::size_t(Built&)>;  // gives where it lies

  std::string bytes;

  void align(std::size_t to, std::size_t ahead = 0) {
    while ((bytes.size() + ahead) % to != 0) bytes.push_back('\0');
  }

  template <class Number>
  void put(Number value) {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }

  void point(std::size_t from, std::size_t to) {
    const auto offset = static_cast<std::uint32_t>(to - from);
    std::memcpy(bytes.data() + from, &offset, sizeof(offset));
  }

  std::size_t vector(std::string_view content, std::size_t element, std::size_t alignment) {
    align(4);
    align(alignment, 4);
    const auto at = bytes.size();
    put(static_cast<std::uint32_t>(content.size() / element));
    bytes += content;
    return at;
  }

  std::size_t text(std::string_view content) {
    const auto at = vector(content, 1, 4);
    bytes.push_back('\0');
    return at;
  }

  // Offsets to what these write, one after the other.
  std::size_t offsets(const std::vector<Write>& targets) {
    const auto at = vector(std::string(4 * targets.size(), '\0'), 4, 4);
    for (std::size_t i = 0; i < targets.size(); ++i) point(at + 4 + 4 * i, targets[i](*this));
    return at;
  }
};

class TableOf {
 public:
  template <class Number>
  TableOf& number(unsigned field, Number value) {
    std::string scalar(reinterpret_cast<const char*>(&value), sizeof(value));
    fields_.push_back({field, std::move(scalar), {}});
    return *this;
  }
  template <class Number>
  TableOf& numbers(unsigned field, const std::vector<Number>& values) {
    std::string bytes(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(Number));
    return add(field, [bytes](Built& built) { return built.vector(bytes, sizeof(Number), sizeof(Number)); });
  }
  TableOf& text(unsigned field, std::string value) { return add(field, write_text(std::move(value))); }
  TableOf& bytes(unsigned field, const std::string& value, unsigned alignment = 1) {
    return add(field, [value, alignment](Built& built) { return built.vector(value, 1, alignment); });
  }
  TableOf& table(unsigned field, TableOf value) { return add(field, write_table(std::move(value))); }
  TableOf& tables(unsigned field, const std::vector<TableOf>& values) { return add_all(field, values, write_table); }
  TableOf& texts(unsigned field, const std::vector<std::string>& values) { return add_all(field, values, write_text); }

  std::size_t write(Built& built) const {
    unsigned slots = 0;
    for (const auto& field : fields_) slots = field.number + 1 > slots ? field.number + 1 : slots;
    std::vector<std::uint16_t> places(slots);
    std::uint16_t size = 8;
    for (const auto& field : fields_) {
      places[field.number] = size;
      size = static_cast<std::uint16_t>(size + 8);
    }
    built.align(2);
    const auto vtable = built.bytes.size();
    built.put(static_cast<std::uint16_t>(4 + 2 * slots));
    built.put(size);
    for (const auto place : places) built.put(place);
    built.align(8);
    const auto at = built.bytes.size();
    built.put(static_cast<std::int32_t>(at - vtable));
    built.bytes.resize(at + size);
    for (const auto& [number, scalar, target] : fields_)
      built.bytes.replace(at + places[number], scalar.size(), scalar);
    for (const auto& [number, scalar, target] : fields_)
      if (target) built.point(at + places[number], target(built));
    return at;
  }

 private:
  struct Field {
    unsigned number;
    std::string scalar;  // or what the offset leads to:
    Built::Write target;
  };

  static Built::Write write_text(std::string value) {
    return [text = std::move(value)](Built& built) { return built.text(text); };
  }
  static Built::Write write_table(TableOf value) {
    return [table = std::move(value)](Built& built) { return table.write(built); };
  }

  TableOf& add(unsigned field, Built::Write target) {
    fields_.push_back({field, {}, std::move(target)});
    return *this;
  }
  template <class Value>
  TableOf& add_all(unsigned field, const std::vector<Value>& values, Built::Write (*target_of)(Value)) {
    std::vector<Built::Write> targets;
    for (const auto& value : values) targets.push_back(target_of(value));
    return add(field, [targets](Built& built) { return built.offsets(targets); });
  }

  std::vector<Field> fields_;
};

// A file: the offset of the root, four letters, what stands behind them, and the tables, padded to whole eights.
inline std::string file_of(const TableOf& root, std::string_view identifier, std::string_view header = {}) {
  Built built;
  built.put(std::uint32_t{0});
  built.bytes += identifier;
  built.bytes += header;
  built.align(8);
  built.point(0, root.write(built));
  built.align(8);
  return built.bytes;
}

}  // namespace flatbuffer_test
