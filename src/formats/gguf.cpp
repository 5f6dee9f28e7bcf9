#include "onecopy/formats/gguf.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/checked_size.hpp"
#include "formats/entry_list.hpp"
#include "formats/signatures.hpp"
#include "formats/wire/cursor.hpp"
#include "formats/wire/json.hpp"
#include "onecopy/base/dtype.hpp"
#include "onecopy/base/error.hpp"

namespace onecopy::gguf {
namespace {

using json::describe;

// --- the element types of ggml: numbers, and blocks of numbers that are quantised together ---
// https://github.com/ggml-org/ggml/blob/master/include/ggml.h, enum ggml_type

struct TypeFacts {
  std::string_view name;
  std::uint32_t block = 0;  // numbers in a block; 0: removed from ggml
  std::uint32_t bytes = 0;  // of a block
  std::optional<DType> dtype;
};

// By their numbers in the file. Blocks of Q8_1 have the 36 bytes that ggml's code has; the gguf package says 40, the
// layout of 2023, for a type that files do not have.
constexpr std::array<TypeFacts, 43> types{{
    {"F32", 1, 4, DType::f32}, {"F16", 1, 2, DType::f16}, {"Q4_0", 32, 18, {}},        {"Q4_1", 32, 20, {}},
    {"Q4_2", 0, 0, {}},        {"Q4_3", 0, 0, {}},        {"Q5_0", 32, 22, {}},        {"Q5_1", 32, 24, {}},
    {"Q8_0", 32, 34, {}},      {"Q8_1", 32, 36, {}},      {"Q2_K", 256, 84, {}},       {"Q3_K", 256, 110, {}},
    {"Q4_K", 256, 144, {}},    {"Q5_K", 256, 176, {}},    {"Q6_K", 256, 210, {}},      {"Q8_K", 256, 292, {}},
    {"IQ2_XXS", 256, 66, {}},  {"IQ2_XS", 256, 74, {}},   {"IQ3_XXS", 256, 98, {}},    {"IQ1_S", 256, 50, {}},
    {"IQ4_NL", 32, 18, {}},    {"IQ3_S", 256, 110, {}},   {"IQ2_S", 256, 82, {}},      {"IQ4_XS", 256, 136, {}},
    {"I8", 1, 1, DType::i8},   {"I16", 1, 2, DType::i16}, {"I32", 1, 4, DType::i32},   {"I64", 1, 8, DType::i64},
    {"F64", 1, 8, DType::f64}, {"IQ1_M", 256, 56, {}},    {"BF16", 1, 2, DType::bf16}, {"Q4_0_4_4", 0, 0, {}},
    {"Q4_0_4_8", 0, 0, {}},    {"Q4_0_8_8", 0, 0, {}},    {"TQ1_0", 256, 54, {}},      {"TQ2_0", 256, 66, {}},
    {"IQ4_NL_4_4", 0, 0, {}},  {"IQ4_NL_4_8", 0, 0, {}},  {"IQ4_NL_8_8", 0, 0, {}},    {"MXFP4", 32, 17, {}},
    {"NVFP4", 64, 36, {}},     {"Q1_0", 128, 18, {}},     {"Q2_0", 64, 18, {}},
}};
static_assert(types.back().name == "Q2_0");

// --- the metadata: values one after the other, which become text ---

enum class ValueType : std::uint8_t {
  uint8,
  int8,
  uint16,
  int16,
  uint32,
  int32,
  float32,
  boolean,
  text,
  array,
  uint64,
  int64,
  float64,
};

struct ValueFacts {
  std::string_view name;
  unsigned bytes = 0;  // 0: of no fixed size
};

constexpr std::array<ValueFacts, 13> value_types{{
    {"UINT8", 1},
    {"INT8", 1},
    {"UINT16", 2},
    {"INT16", 2},
    {"UINT32", 4},
    {"INT32", 4},
    {"FLOAT32", 4},
    {"BOOL", 1},
    {"STRING", 0},
    {"ARRAY", 0},
    {"UINT64", 8},
    {"INT64", 8},
    {"FLOAT64", 8},
}};
constexpr unsigned text_head = 8;    // bytes that an empty text has
constexpr unsigned array_head = 12;  // the same of an array: type and length

const ValueFacts& facts(ValueType type) noexcept { return value_types.at(static_cast<std::size_t>(type)); }

// The shortest text that reads back as the same number.
template <class Float>
std::string text_of(Float value) {
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  return {text.data(), end};
}

std::string_view read_bool(Cursor& cursor, std::string_view key) {
  const auto value = cursor.number<std::uint8_t>(key);
  if (value > 1) cursor.fail(FormatError::malformed, "the BOOL ", describe(key), " must be 0 or 1, not ", value);
  return value == 1 ? "true" : "false";
}

std::string read_number(Cursor& cursor, ValueType type, std::string_view key) {
  switch (type) {
    case ValueType::uint8: return std::to_string(cursor.number<std::uint8_t>(key));
    case ValueType::int8: return std::to_string(cursor.number<std::int8_t>(key));
    case ValueType::uint16: return std::to_string(cursor.number<std::uint16_t>(key));
    case ValueType::int16: return std::to_string(cursor.number<std::int16_t>(key));
    case ValueType::uint32: return std::to_string(cursor.number<std::uint32_t>(key));
    case ValueType::int32: return std::to_string(cursor.number<std::int32_t>(key));
    case ValueType::float32: return text_of(std::bit_cast<float>(cursor.number<std::uint32_t>(key)));
    case ValueType::boolean: return std::string(read_bool(cursor, key));
    case ValueType::uint64: return std::to_string(cursor.number<std::uint64_t>(key));
    case ValueType::int64: return std::to_string(cursor.number<std::int64_t>(key));
    case ValueType::float64: return text_of(std::bit_cast<double>(cursor.number<std::uint64_t>(key)));
    case ValueType::text:
    case ValueType::array: break;
  }
  return {};
}

// A length, and that many bytes.
std::string_view read_bytes(Cursor& cursor, std::uint64_t limit, std::string_view what) {
  const auto length = cursor.number<std::uint64_t>(what);
  if (length > limit)
    cursor.fail(FormatError::too_costly, describe(what), " has ", length, " bytes, more than the maximum of ", limit);
  return cursor.text(length, what);
}

// A length, and a text of that many bytes, UTF-8. `what` names it, for messages.
std::string_view read_text(Cursor& cursor, std::uint64_t limit, std::string_view what) {
  const auto text = read_bytes(cursor, limit, what);
  if (!json::is_utf8(text)) cursor.fail(FormatError::malformed, describe(what), " is not UTF-8");
  return text;
}

// The number of following items of at least `least` bytes each.
std::uint64_t read_count(Cursor& cursor, std::uint64_t least, std::string_view what) {
  const auto count = cursor.number<std::uint64_t>(what);
  if (count > cursor.left() / least)
    cursor.fail(FormatError::truncated, describe(what), " declares ", count, " of at least ", least,
                " bytes each, but only ", cursor.left(), " bytes are left");
  return count;
}

// The type of the metadata's value `key`; throws FormatError for an unknown number.
ValueType read_type(Cursor& cursor, std::string_view key) {
  const auto number = cursor.number<std::uint32_t>(key);
  if (number >= value_types.size())
    cursor.fail(FormatError::unsupported, describe(key), " has the unknown type ", number);
  return static_cast<ValueType>(number);
}

struct ArrayHead {
  ValueType type;
  std::uint64_t count = 0;
};

ArrayHead read_array_head(Cursor& cursor, std::string_view key) {
  const ValueType type = read_type(cursor, key);
  const unsigned fixed = facts(type).bytes;
  const unsigned least = fixed != 0 ? fixed : type == ValueType::text ? text_head : array_head;
  return {type, read_count(cursor, least, key)};
}

// Texts of arrays are skipped, not validated: vocabularies have tokens that are not UTF-8.
void skip_elements(Cursor& cursor, const ArrayHead& head, std::string_view key, int depth) {
  if (depth > deepest_array)
    cursor.fail(FormatError::too_costly, "arrays of ", describe(key), " are nested more than ", deepest_array, " deep");
  if (const unsigned fixed = facts(head.type).bytes; fixed != 0) return (void)cursor.bytes(head.count * fixed, key);
  for (std::uint64_t i = 0; i < head.count; ++i) {
    if (head.type == ValueType::text)
      (void)read_bytes(cursor, UINT64_MAX, key);
    else
      skip_elements(cursor, read_array_head(cursor, key), key, depth + 1);
  }
}

std::string read_array(Cursor& cursor, std::string_view key) {
  const ArrayHead head = read_array_head(cursor, key);
  if (facts(head.type).bytes == 0 || head.count > longest_listed) {
    skip_elements(cursor, head, key, 1);
    return '[' + std::to_string(head.count) + " values of " + std::string(facts(head.type).name) + ']';
  }
  std::string text = "[";
  for (std::uint64_t i = 0; i < head.count; ++i) text += (i == 0 ? "" : ", ") + read_number(cursor, head.type, key);
  return text + ']';
}

// Reads the value, as text.
std::string read_value(Cursor& cursor, ValueType type, std::string_view key) {
  switch (type) {
    case ValueType::text: return std::string(read_text(cursor, UINT64_MAX, key));
    case ValueType::array: return read_array(cursor, key);
    default: return read_number(cursor, type, key);
  }
}

// --- tensors ---

constexpr std::string_view alignment_key = "general.alignment";
constexpr std::string_view version_key = "GGUF.version";
constexpr std::uint64_t least_pair = 13;    // bytes: a length and a type, and a value
constexpr std::uint64_t least_tensor = 24;  // the same of a tensor without name and axes

class Parser {
 public:
  explicit Parser(Bytes file) : file_(file), cursor_("GGUF", "the header", file, {0, file.size()}) {}

  Index parse() {
    read_version();
    const auto tensors = read_count(cursor_, least_tensor, "tensor_count");
    const auto pairs = read_count(cursor_, least_pair, "metadata_kv_count");
    for (std::uint64_t i = 0; i < pairs; ++i) read_pair();
    for (std::uint64_t i = 0; i < tensors; ++i) tensors_.push_back(read_tensor());
    const std::uint64_t begin = data_begin();
    for (FoundArray& tensor : tensors_) place(tensor, begin);
    entries_.reject_overlaps();
    return std::move(entries_).finish("gguf", std::move(metadata_), begin);
  }

 private:
  void read_version() {
    (void)cursor_.bytes(signatures::gguf.bytes.size());
    const auto version = cursor_.number<std::uint32_t>("version");
    if ((version & 0xFFFFU) == 0 && version != 0)
      reject(FormatError::unsupported,
             "GGUF: the file is big-endian, but only little-endian files can be viewed in place");
    if (version != 2 && version != 3)
      reject(FormatError::unsupported, "GGUF: version ", version, " is not supported, only 2 and 3");
    metadata_.emplace(version_key, std::to_string(version));
  }

  void read_pair() {
    const std::string key(read_text(cursor_, longest_key, "a key of the metadata"));
    const ValueType type = read_type(cursor_, key);
    if (key == alignment_key)
      read_alignment(type);
    else if (!metadata_.emplace(key, read_value(cursor_, type, key)).second)
      cursor_.fail(FormatError::inconsistent, "metadata ", describe(key), " occurs twice");
  }

  void read_alignment(ValueType type) {
    if (type != ValueType::uint32) cursor_.fail(FormatError::malformed, "general.alignment is not UINT32");
    alignment_ = cursor_.number<std::uint32_t>(alignment_key);
    if (alignment_ < 8 || alignment_ > largest_alignment || !std::has_single_bit(alignment_))
      cursor_.fail(FormatError::malformed, "general.alignment is ", alignment_, ", not a power of two from 8 to ",
                   largest_alignment);
    if (!metadata_.emplace(alignment_key, std::to_string(alignment_)).second)
      cursor_.fail(FormatError::inconsistent, "metadata 'general.alignment' occurs twice");
  }

  // The start of the data section, where its data begins at an offset, is known after the last of them.
  FoundArray read_tensor() {
    FoundArray tensor;
    tensor.name = read_text(cursor_, longest_name, "a tensor's name");
    const auto axes = cursor_.number<std::uint32_t>(tensor.name);
    if (axes > most_axes)
      cursor_.fail(FormatError::too_costly, describe(tensor.name), " has ", axes, " axes, more than the maximum of ",
                   most_axes);
    for (std::uint32_t i = 0; i < axes; ++i) {
      tensor.shape.push_back(cursor_.number<std::uint64_t>(tensor.name));
      if (tensor.shape.back() > INT64_MAX)
        cursor_.fail(FormatError::malformed, describe(tensor.name), " has a negative extent");
    }
    std::ranges::reverse(tensor.shape);  // the file has the fastest axis first
    const TypeFacts& type = read_element_type(tensor.name);
    tensor.dtype = type.dtype.value_or(DType::u8);
    if (!type.dtype) tensor.raw_type = type.name;
    tensor.data.offset = cursor_.number<std::uint64_t>(tensor.name);
    tensor.data.length = size_of(tensor, type);
    return tensor;
  }

  const TypeFacts& read_element_type(const std::string& name) {
    const auto number = cursor_.number<std::uint32_t>(name);
    if (number >= types.size())
      cursor_.fail(FormatError::unsupported, describe(name), " has the unknown type ", number);
    const TypeFacts& type = types.at(number);
    if (type.block == 0)
      cursor_.fail(FormatError::unsupported, describe(name), " has type ", type.name,
                   ", which ggml no longer supports");
    return type;
  }

  std::uint64_t size_of(const FoundArray& tensor, const TypeFacts& type) const {
    const std::uint64_t row = tensor.shape.empty() ? 1 : tensor.shape.back();
    if (row % type.block != 0)
      cursor_.fail(FormatError::inconsistent, "rows of ", describe(tensor.name), " have ", row,
                   " elements, but a block of ", type.name, " has ", type.block);
    auto blocks = tensor.shape;
    if (!blocks.empty()) blocks.back() = row / type.block;
    const auto size = checked_size(blocks, type.bytes);
    if (!size)
      cursor_.fail(FormatError::out_of_bounds, "the shape of ", describe(tensor.name), " needs more than 2^64 bytes");
    return *size;
  }

  std::uint64_t data_begin() const {
    const std::uint64_t end = cursor_.position();
    const std::uint64_t padding = (alignment_ - end % alignment_) % alignment_;
    if (in_bounds(file_.size(), end, padding)) return end + padding;
    if (!tensors_.empty())
      cursor_.fail(FormatError::truncated, "the data should begin after ", padding, " bytes, but only ", cursor_.left(),
                   " are left");
    return file_.size();
  }

  // Offsets are relative to the data section in the file, and to the file's start in an Entry.
  void place(FoundArray& tensor, std::uint64_t begin) {
    const auto [offset, length] = tensor.data;
    if (offset % alignment_ != 0)
      reject(FormatError::malformed, "GGUF: ", describe(tensor.name), " begins at byte ", offset,
             " of the data, which is not a multiple of ", alignment_);
    if (!in_bounds(file_.size() - begin, offset, length))
      reject(FormatError::out_of_bounds, "GGUF: ", describe(tensor.name), " of ", length, " bytes begins at byte ",
             offset, " of the data, which has only ", file_.size() - begin);
    tensor.data.offset += begin;
    entries_.add(std::move(tensor));
  }

  Bytes file_;
  Cursor cursor_;
  std::uint32_t alignment_ = default_alignment;
  std::map<std::string, std::string, std::less<>> metadata_;
  std::vector<FoundArray> tensors_;
  EntryList entries_;
};

}  // namespace

bool is_gguf(Bytes file) noexcept { return signatures::gguf.is_in(file); }

Index parse(Bytes file) {
  if (!is_gguf(file)) reject(FormatError::not_this_format, "GGUF: the file does not begin with 'GGUF'");
  return Parser(file).parse();
}

}  // namespace onecopy::gguf
