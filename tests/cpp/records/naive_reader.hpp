// A records file as text, value by value, by the words of the specification: slow, and simple enough to be right.
#pragma once

#include <cstring>
#include <string>
#include <type_traits>

#include "onecopy/arrays/array_file.hpp"
#include "onecopy/formats/record_schema.hpp"

namespace onecopy::testing {

class NaiveReader {
 public:
  explicit NaiveReader(ArrayFile file)
      : file_(std::move(file)),
        schema_(records::parse_record_schema(file_.index().metadata().find("onecopy")->second)) {}

  const records::RecordSchema& schema() const { return schema_; }
  const ArrayFile& file() const { return file_; }

  // [1, None, 'text', {'key': (1.5, 2)}]
  std::string rows() const {
    return list_of(0, schema_.rows.length, [this](std::uint64_t i) { return value(schema_.rows, "records.0", i); });
  }

  std::string value(const records::Type& type, const std::string& path, std::uint64_t i) const {
    using enum records::TypeKind;
    if (type.kind == null || (type.nullable && !bit(path + ".validity", i))) return "None";
    const std::string data = path + ".data";
    switch (type.kind) {
      case boolean: return bit(data, i) ? "True" : "False";
      case integer: return std::to_string(integer_at(data, i));
      case real: return real_text(at<double>(data, i));
      case number:
        if (bit(path + ".ints", i)) return std::to_string(static_cast<std::int64_t>(at<double>(data, i)));
        return real_text(at<double>(data, i));
      case text: return "'" + slice(path, i) + "'";
      case bytes: return "b'" + slice(path, i) + "'";
      case bigint: return "bigint:" + hexadecimal(slice(path, i));
      case list: return items(type, path, i);
      case tuple: return "tuple" + items(type, path, i);
      case fixed: return fixed_text(type, path, i);
      case record: return record_text(type, path, i);
      case map: return map_text(type, path, i);
      case extension: return type.name + "<" + child(type, path, 0, i) + ">";
      case choice: {
        const auto tag = static_cast<std::size_t>(integer_at(path + ".tag", i));
        return child(type, path, tag, static_cast<std::uint64_t>(integer_at(path + ".offsets", i)));
      }
      default: return "?";
    }
  }

 private:
  template <class T>
  T at(const std::string& name, std::uint64_t i) const {
    T value;
    std::memcpy(&value, file_.bytes(name).subspan(i * sizeof(T), sizeof(T)).data(), sizeof(T));
    return value;
  }

  std::int64_t integer_at(const std::string& name, std::uint64_t i) const {
    switch (file_.entry(name).dtype) {
      case DType::i8: return at<std::int8_t>(name, i);
      case DType::i16: return at<std::int16_t>(name, i);
      case DType::i32: return at<std::int32_t>(name, i);
      case DType::u8: return at<std::uint8_t>(name, i);
      case DType::u16: return at<std::uint16_t>(name, i);
      case DType::u32: return at<std::uint32_t>(name, i);
      default: return at<std::int64_t>(name, i);
    }
  }

  bool bit(const std::string& name, std::uint64_t i) const {
    return (at<std::uint8_t>(name, i / 8) >> (i % 8) & 1) != 0;
  }

  static std::string real_text(double value) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof(bits));
    char text[64];
    if (value != value)
      std::snprintf(text, sizeof(text), "nan:%016llx", static_cast<unsigned long long>(bits));
    else
      std::snprintf(text, sizeof(text), "%.17gf", value);
    return text;
  }

  static std::string hexadecimal(const std::string& bytes) {
    std::string text;
    for (const char c : bytes) {
      char two[3];
      std::snprintf(two, sizeof(two), "%02x", static_cast<unsigned>(static_cast<unsigned char>(c)));
      text += two;
    }
    return text;
  }

  std::uint64_t offset(const std::string& path, std::uint64_t i) const {
    return static_cast<std::uint64_t>(integer_at(path + ".offsets", i));
  }

  std::string slice(const std::string& path, std::uint64_t i) const {
    const auto begin = offset(path, i);
    const auto bytes = file_.bytes(path + ".data").subspan(begin, offset(path, i + 1) - begin);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  template <class Item>
  static std::string list_of(std::uint64_t begin, std::uint64_t end, const Item& item) {
    std::string text = "[";
    for (std::uint64_t i = begin; i < end; ++i) text += (i > begin ? ", " : "") + item(i);
    return text + "]";
  }

  std::string child(const records::Type& type, const std::string& path, std::size_t n, std::uint64_t i) const {
    return value(type.children.at(n), records::child_path(path, type, n), i);
  }

  std::string items(const records::Type& type, const std::string& path, std::uint64_t i) const {
    return list_of(offset(path, i), offset(path, i + 1), [&](std::uint64_t at) { return child(type, path, 0, at); });
  }

  std::string fixed_text(const records::Type& type, const std::string& path, std::uint64_t i) const {
    std::string text = "(";
    for (std::size_t n = 0; n < type.children.size(); ++n) text += child(type, path, n, i) + ",";
    return text + ")";
  }

  std::string record_text(const records::Type& type, const std::string& path, std::uint64_t i) const {
    const auto shape = type.shapes.size() == 1 ? 0 : static_cast<std::size_t>(integer_at(path + ".shape", i));
    std::string text = "{";
    for (const std::uint32_t n : type.shapes.at(shape))
      text += (text.size() > 1 ? ", " : "") + type.fields[n] + ": " + child(type, path, n, i);
    return text + "}";
  }

  std::string map_text(const records::Type& type, const std::string& path, std::uint64_t i) const {
    return "map" + list_of(offset(path, i), offset(path, i + 1), [&](std::uint64_t at) {
             return child(type, path, 0, at) + ": " + child(type, path, 1, at);
           });
  }

  ArrayFile file_;
  records::RecordSchema schema_;
};

}  // namespace onecopy::testing
