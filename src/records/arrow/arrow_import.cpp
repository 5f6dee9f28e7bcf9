#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <string>
#include <string_view>
#include <system_error>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/seeded_hash.hpp"
#include "formats/wire/json.hpp"
#include "onecopy/base/error.hpp"
#include "onecopy/records/arrow.hpp"
#include "onecopy/records/hash_index.hpp"

namespace onecopy::records {
namespace {

[[noreturn]] void refuse(const std::string& path, const std::string& what) {
  reject(FormatError::unsupported, "the column '" + path + "' " + what);
}

template <class T>
T at(const ArrowArray& array, std::int64_t buffer, std::int64_t i) noexcept {
  T value;  // NOLINT(cppcoreguidelines-init-variables): filled at once
  std::memcpy(&value, static_cast<const char*>(array.buffers[buffer]) + i * std::int64_t{sizeof value}, sizeof value);
  return value;
}

bool bit(const ArrowArray& array, std::int64_t buffer, std::int64_t i) noexcept {
  return (unsigned{at<std::uint8_t>(array, buffer, i / 8)} >> static_cast<unsigned>(i % 8) & 1U) != 0;
}

double half(std::uint16_t bits) noexcept {
  const auto exponent = static_cast<int>(bits >> 10U & 0x1FU);
  const auto mantissa = static_cast<int>(bits & 0x3FFU);
  double value = exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(mantissa + 1024, exponent - 25);
  if (exponent == 31) value = mantissa == 0 ? HUGE_VAL : std::nan("");
  return (bits & 0x8000U) != 0 ? -value : value;
}

// Two's complement, with a byte more for the sign.
std::array<std::byte, 9> wide(std::uint64_t value) noexcept {
  std::array<std::byte, 9> bytes{};
  std::ranges::copy(std::bit_cast<std::array<std::byte, 8>>(value), bytes.begin());
  return bytes;
}

class Reader {
 public:
  Reader(const ArrowSchema& schema, std::string path, int depth = 0) : path_(std::move(path)), format_(schema.format) {
    if (depth > 60) refuse(path_, "is nested more than 60 deep");
    if (schema.dictionary != nullptr) {
      format_ = "dictionary of " + format_;
      index_ = schema.format[0];
      if (std::string_view("cCsSiIlL").find(index_) == std::string_view::npos)
        refuse(path_, "has the unsupported type " + format_);
      children_.emplace_back(*schema.dictionary, path_, depth + 1);
      return;
    }
    read_format();
    for (std::int64_t i = 0; i < schema.n_children; ++i)
      children_.emplace_back(*schema.children[i], child_path(*schema.children[i]), depth + 1),
          names_.emplace_back(schema.children[i]->name == nullptr ? "" : schema.children[i]->name);
    expect_children();
  }

  // Value i, counted from the array's own offset.
  void append(Column& column, const ArrowArray& array, std::int64_t i) const {
    i += array.offset;
    if (is_null(array, i)) return column.null();
    switch (shape_) {
      case Shape::leaf: return append_leaf(column, array, i);
      case Shape::bytes:
      case Shape::view: return append_text(column, text(array, i));
      case Shape::list: return append_list(column, array, i);
      case Shape::fields: return append_record(column, array, i);
      case Shape::map: return append_map(column, array, i);
      case Shape::choice:
      case Shape::dictionary: break;
    }
    const Chosen value = chosen(array, i);
    value.reader->append(column, *value.array, value.place);
  }

  bool is_table() const noexcept { return shape_ == Shape::fields; }

 private:
  enum class Shape : std::uint8_t { leaf, bytes, view, list, fields, map, choice, dictionary };

  void read_format() {
    const std::string_view format = format_;
    if (format.size() == 1 && std::string_view("nbcCsSiIlLefg").find(format[0]) != std::string_view::npos)
      shape_ = Shape::leaf;
    else if (format == "u" || format == "U" || format == "z" || format == "Z" || format.starts_with("w:"))
      shape_ = Shape::bytes;
    else if (format == "vu" || format == "vz")
      shape_ = Shape::view;
    else if (format == "+l" || format == "+L" || format.starts_with("+w:"))
      shape_ = Shape::list;
    else if (format == "+s")
      shape_ = Shape::fields;
    else if (format == "+m")
      shape_ = Shape::map;
    else if (format.starts_with("+ud:") || format.starts_with("+us:"))
      read_union(format.substr(4));
    else
      refuse(path_, "has the Arrow type '" + format_ + "', which records do not support: cast it first");
    if (format.starts_with("w:") || format.starts_with("+w:"))
      fixed_size_ = number_at(format.substr(format.find(':') + 1));
  }

  void read_union(std::string_view ids) {
    shape_ = Shape::choice;
    child_of_tag_.assign(128, -1);
    for (int child = 0; !ids.empty(); ++child) {
      const std::size_t end = std::min(ids.find(','), ids.size());
      const std::int64_t id = number_at(ids.substr(0, end));
      if (id < 0 || id > 127) refuse(path_, "has a union with the invalid tag " + std::to_string(id));
      child_of_tag_[static_cast<std::size_t>(id)] = child;
      ids.remove_prefix(std::min(end + 1, ids.size()));
    }
  }

  std::int64_t number_at(std::string_view text) const {
    std::int64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || end != text.data() + text.size() || number < 0)
      refuse(path_, "has the Arrow type '" + format_ + "'");
    return number;
  }

  std::string child_path(const ArrowSchema& child) const {
    if (child.name == nullptr || shape_ != Shape::fields) return path_;
    return path_.empty() ? child.name : path_ + "." + child.name;
  }

  void expect_children() const {
    const bool one = shape_ == Shape::list || shape_ == Shape::map;
    if (one && children_.size() != 1) refuse(path_, "has a list without an element type");
    if (shape_ == Shape::map && children_[0].children_.size() != 2)
      refuse(path_, "has a map without key and value types");
    if (shape_ == Shape::map && !children_[0].children_[0].is_key())
      refuse(path_, "has a map whose keys are lists, structs or maps, which cannot be keys of a dict: cast it first");
    for (const int child : child_of_tag_)
      if (std::cmp_greater_equal(child, children_.size())) refuse(path_, "has a union whose types are missing");
    std::unordered_set<std::string_view, SeededHash> names;
    for (const auto& name : names_)
      if (shape_ == Shape::fields && !names.insert(name).second)
        refuse(path_.empty() ? name : path_ + "." + name, "occurs twice");
  }

  bool is_key() const noexcept {
    if (shape_ == Shape::choice || shape_ == Shape::dictionary) return std::ranges::all_of(children_, &Reader::is_key);
    return shape_ == Shape::leaf || shape_ == Shape::bytes || shape_ == Shape::view;
  }

  bool is_null(const ArrowArray& array, std::int64_t i) const noexcept {
    if (format_ == "n") return true;
    if (shape_ == Shape::choice || array.n_buffers == 0 || array.buffers[0] == nullptr) return false;
    return !bit(array, 0, i);
  }

  static std::int64_t integer(const ArrowArray& array, std::int64_t i, char format) noexcept {
    switch (format) {
      case 'c': return at<std::int8_t>(array, 1, i);
      case 'C': return at<std::uint8_t>(array, 1, i);
      case 's': return at<std::int16_t>(array, 1, i);
      case 'S': return at<std::uint16_t>(array, 1, i);
      case 'i': return at<std::int32_t>(array, 1, i);
      case 'I': return at<std::uint32_t>(array, 1, i);
      default: return at<std::int64_t>(array, 1, i);
    }
  }

  void append_leaf(Column& column, const ArrowArray& array, std::int64_t i) const {
    switch (format_[0]) {
      case 'b': return column.boolean(bit(array, 1, i));
      case 'e':
      case 'f':
      case 'g': return column.real(real(array, i));
      default: break;
    }
    const std::int64_t value = integer(array, i, format_[0]);
    if (format_ == "L" && value < 0) return column.bigint(wide(static_cast<std::uint64_t>(value)));
    column.integer(value);
  }

  double real(const ArrowArray& array, std::int64_t i) const noexcept {
    if (format_ == "e") return half(at<std::uint16_t>(array, 1, i));
    return format_ == "f" ? double{at<float>(array, 1, i)} : at<double>(array, 1, i);
  }

  struct Range {
    std::int64_t begin, end;
  };
  Range range(const ArrowArray& array, std::int64_t i) const {
    if (fixed_size_ >= 0) return {i * fixed_size_, (i + 1) * fixed_size_};
    const bool has_wide_offsets = format_ == "U" || format_ == "Z" || format_ == "+L";
    const Range found = has_wide_offsets ? Range{at<std::int64_t>(array, 1, i), at<std::int64_t>(array, 1, i + 1)}
                                         : Range{at<std::int32_t>(array, 1, i), at<std::int32_t>(array, 1, i + 1)};
    if (found.begin < 0 || found.begin > found.end) refuse(path_, "has decreasing offsets");
    return found;
  }

  bool is_text() const noexcept { return format_.back() == 'u' || format_.back() == 'U'; }

  void append_text(Column& column, std::string_view value) const {
    if (!is_text()) return column.bytes(std::as_bytes(std::span(value)));
    if (!json::is_utf8(value)) refuse(path_, "has text that is not UTF-8");
    column.text(value);
  }

  // A view has 16 bytes: the length, then up to 12 bytes of text, or its first four, the number of a buffer and the
  // place there.
  std::string_view text(const ArrowArray& array, std::int64_t i) const {
    if (shape_ == Shape::bytes) {
      const auto [begin, end] = range(array, i);
      const auto* data = static_cast<const char*>(array.buffers[fixed_size_ >= 0 ? 1 : 2]);
      return begin == end ? "" : std::string_view(data + begin, static_cast<std::size_t>(end - begin));
    }
    const char* view = static_cast<const char*>(array.buffers[1]) + i * 16;
    std::int32_t words[4];  // NOLINT(modernize-avoid-c-arrays)
    std::memcpy(words, view, sizeof words);
    const char* first = words[0] <= 12 ? view + 4 : static_cast<const char*>(array.buffers[2 + words[2]]) + words[3];
    return {first, static_cast<std::size_t>(words[0])};
  }

  void append_list(Column& column, const ArrowArray& array, std::int64_t i) const {
    const auto [begin, end] = range(array, i);
    ListColumn& list = column.list();
    for (std::int64_t item = begin; item < end; ++item) children_[0].append(list.items(), *array.children[0], item);
    list.end();
  }

  void append_record(Column& column, const ArrowArray& array, std::int64_t i) const {
    RecordColumn& record = column.record();
    for (std::size_t field = 0; field < children_.size(); ++field)
      children_[field].append(record.field(names_[field]), *array.children[field], i);
    record.end();
  }

  void append_map(Column& column, const ArrowArray& array, std::int64_t i) const {
    const auto [begin, end] = range(array, i);
    const ArrowArray& entries = *array.children[0];
    const Reader& keys = children_[0].children_[0];
    expect_different(keys, *entries.children[0], {begin + entries.offset, end + entries.offset});
    MapColumn& map = column.map();
    for (std::int64_t entry = begin; entry < end; ++entry) {
      keys.append(map.keys(), *entries.children[0], entry + entries.offset);
      children_[0].children_[1].append(map.values(), *entries.children[1], entry + entries.offset);
    }
    map.end();
  }

  // Keys with one hash are equal: they cannot be chosen to collide, and for chance it has too many bits.
  void expect_different(const Reader& keys, const ArrowArray& array, Range entries) const {
    static const HashSeed seed = new_seed();
    std::vector<std::uint64_t> hashes;
    for (std::int64_t i = entries.begin; i < entries.end; ++i)
      if (const Key key = keys.key(array, i); key == key) hashes.push_back(key.hash(seed));  // NaN equals no key
    std::ranges::sort(hashes);
    const auto twice = std::ranges::adjacent_find(hashes);
    for (std::int64_t i = entries.begin; twice != hashes.end() && i < entries.end; ++i)
      if (const Key key = keys.key(array, i); key.hash(seed) == *twice)
        refuse(path_, "has a map that contains the key " + key.shown() + " twice, which a dict does not allow");
  }

  // Value i as the key of a dict, which refers to the memory of the array.
  Key key(const ArrowArray& array, std::int64_t i) const {
    i += array.offset;
    if (is_null(array, i)) return {};
    if (shape_ == Shape::bytes || shape_ == Shape::view)
      return is_text() ? Key::of(text(array, i)) : Key::of_bytes(text(array, i));
    if (shape_ != Shape::leaf) {
      const Chosen value = chosen(array, i);
      return value.reader->key(*value.array, value.place);
    }
    if (format_ == "b") return Key::of(std::int64_t{bit(array, 1, i)});
    if (format_ == "e" || format_ == "f" || format_ == "g") return Key::of(real(array, i));
    const std::int64_t value = integer(array, i, format_[0]);
    if (format_ != "L") return Key::of(value);
    const auto bytes = wide(static_cast<std::uint64_t>(value));
    return Key::of_bigint({reinterpret_cast<const char*>(bytes.data()), bytes.size()});  // NOLINT: bytes seen as text
  }

  struct Chosen {
    const Reader* reader;
    const ArrowArray* array;
    std::int64_t place;
  };
  // The value that a union or a dictionary has at i.
  Chosen chosen(const ArrowArray& array, std::int64_t i) const {
    if (shape_ == Shape::dictionary) return {children_.data(), array.dictionary, integer(array, i, index_)};
    const auto tag = at<std::int8_t>(array, 0, i);
    const int child = tag < 0 ? -1 : child_of_tag_[static_cast<std::size_t>(tag)];
    if (child < 0) refuse(path_, "has a value with the unknown tag " + std::to_string(tag));
    const bool dense = format_[2] == 'd';
    const std::int64_t place = dense ? at<std::int32_t>(array, 1, i) : i;
    return {&children_[static_cast<std::size_t>(child)], array.children[child], place};
  }

  std::string path_;
  std::string format_;
  Shape shape_ = Shape::dictionary;
  char index_ = 'i';               // of a dictionary: the format of its numbers
  std::int64_t fixed_size_ = -1;   // of bytes and lists of one length
  std::vector<int> child_of_tag_;  // of a union
  std::vector<Reader> children_;
  std::vector<std::string> names_;
};

// The result of a call of the stream: released on destruction.
template <class Struct>
class Owned {
 public:
  Owned() = default;
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  ~Owned() {
    if (value.release != nullptr) value.release(&value);
  }
  Struct value{};
};

void expect(int error, ArrowArrayStream& stream) {
  if (error == 0) return;
  const char* text = stream.get_last_error(&stream);
  reject(FormatError::malformed,
         "the Arrow stream failed: " + (text == nullptr ? std::generic_category().message(error) : text));
}

}  // namespace

std::uint64_t import_stream(ArrowArrayStream& stream, Column& rows, const std::function<void()>& each) {
  Owned<ArrowSchema> schema;
  expect(stream.get_schema(&stream, &schema.value), stream);
  const Reader reader(schema.value, "");
  if (!reader.is_table())
    reject(FormatError::not_this_format, "expected an Arrow table, found a stream of type '", schema.value.format, "'");
  std::uint64_t count = 0;
  for (;;) {
    Owned<ArrowArray> batch;
    expect(stream.get_next(&stream, &batch.value), stream);
    if (batch.value.release == nullptr) return count;
    for (std::int64_t i = 0; i < batch.value.length; ++i) try {
        reader.append(rows, batch.value, i);
      } catch (const FormatError& error) {
        reject(error.kind(), "row ", count + static_cast<std::uint64_t>(i), ": ", error.what());
      }
    count += static_cast<std::uint64_t>(batch.value.length);
    each();
  }
}

}  // namespace onecopy::records
