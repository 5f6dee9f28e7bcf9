#include "formats/onnx/onnx_tensor.hpp"

#include <algorithm>
#include <charconv>
#include <system_error>
#include <utility>

#include "formats/onnx/onnx_types.hpp"
#include "formats/wire/json.hpp"
#include "onecopy/base/error.hpp"

namespace onecopy::onnx {
namespace {

using json::describe;
using protobuf::Field;
using protobuf::Reader;
using protobuf::Wire;

constexpr std::int32_t float_type = 1;
constexpr std::int32_t double_type = 11;

// What no type has stands for those beyond the numbers of types.
std::int32_t type_in(std::uint64_t value) noexcept {
  return value > INT32_MAX ? INT32_MAX : static_cast<std::int32_t>(value);
}

std::uint64_t number_in(std::string_view text, const std::string& what) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text.empty())
    reject(FormatError::malformed, "ONNX: " + what + " is not a number: " + describe(text));
  return value;
}

// A relative path that leads out of the folder it starts from through links alone: it goes up as far as it went down.
bool is_confined(std::string_view location) noexcept {
  if (location.empty() || location.front() == '/' || location.find('\0') != std::string_view::npos ||
      location.find('\\') != std::string_view::npos)
    return false;
  std::size_t depth = 0;
  for (std::size_t begin = 0; begin <= location.size();) {
    const std::size_t end = std::min(location.find('/', begin), location.size());
    const auto part = location.substr(begin, end - begin);
    if (part == ".." && depth-- == 0) return false;
    if (part != ".." && part != "." && !part.empty()) ++depth;
    begin = end + 1;
  }
  return depth > 0;
}

}  // namespace

Field expect(const Field& field, Wire wire, std::string_view what) {
  if (field.wire != wire)
    reject(FormatError::malformed, "ONNX: ", what, " has the wrong wire type, at byte ", field.whole.offset);
  return field;
}

std::string_view text_of(Bytes file, const Field& field, std::string_view what) {
  const auto text = protobuf::text_at(file, expect(field, Wire::bytes, what).payload);
  if (!json::is_utf8(text))
    reject(FormatError::malformed, "ONNX: ", what, " is not UTF-8, at byte ", field.whole.offset);
  return text;
}

TensorReader::TensorReader(Bytes file, ByteRange message) : file_(file) {
  Reader reader(file, message);
  while (const auto field = reader.next()) read(reader, *field);
}

Tensor TensorReader::finish(std::string name) {
  tensor_.name = std::move(name);
  const TypeFacts* facts = facts_of(tensor_.type);
  if (facts != nullptr) tensor_.dtype = facts->dtype;
  const auto size = size_of(tensor_.type, tensor_.shape);
  if (facts != nullptr && facts->bits != 0 && !size)
    reject(FormatError::out_of_bounds, "ONNX: the shape of " + describe(tensor_.name) + " needs more than 2^64 bits");
  if (external_)
    place_outside(size);
  else
    place_inside(size);
  return std::move(tensor_);
}

void TensorReader::read(const Reader& reader, const Field& field) {
  switch (field.number) {
    case tensor_field::dims: reader.varints(field, [this](std::uint64_t extent) { add_extent(extent); }); break;
    case tensor_field::type: tensor_.type = type_in(expect(field, Wire::varint, "a tensor's type").value); break;
    case tensor_field::name: name_ = text_of(file_, field, "a tensor's name"); break;
    case tensor_field::raw: take_raw(expect(field, Wire::bytes, "raw_data")); break;
    case tensor_field::floats: packed(field, float_type); break;
    case tensor_field::doubles: packed(field, double_type); break;
    case tensor_field::external: read_entry(expect(field, Wire::bytes, "external_data").payload); break;
    case tensor_field::location: external_ = expect(field, Wire::varint, "data_location").value == is_external; break;
    case tensor_field::segment: coded(field); break;
    default:
      if (std::ranges::find(tensor_field::coded, field.number) != tensor_field::coded.end()) coded(field);
  }
}

void TensorReader::add_extent(std::uint64_t extent) {
  if (extent > INT64_MAX) reject(FormatError::malformed, "ONNX: a tensor has a negative extent");
  tensor_.shape.push_back(extent);
}

void TensorReader::take_raw(const Field& field) {
  if (raw_) reject(FormatError::inconsistent, "ONNX: a tensor has raw_data twice");
  raw_ = field.payload;
}

// Numbers of four or eight bytes one after the other are what memory holds; in pieces they are not.
void TensorReader::packed(const Field& field, std::int32_t type) {
  if (field.wire == Wire::bytes && !packed_ && coded_.length == 0) {
    packed_ = field.payload;
    packed_type_ = type;
  } else {
    coded(field);
  }
}

void TensorReader::coded(const Field& field) {
  if (coded_.length == 0) coded_ = field.whole;
  coded_.length = field.whole.offset + field.whole.length - coded_.offset;
}

void TensorReader::read_entry(ByteRange message) {
  Reader reader(file_, message);
  std::string_view key;
  std::string_view value;
  while (const auto field = reader.next()) {
    if (field->number == 1) key = text_of(file_, *field, "a key of external_data");
    if (field->number == 2) value = text_of(file_, *field, "a value of external_data");
  }
  if (key == "location") tensor_.location = value;
  if (key == "offset") outside_.offset = number_in(value, "an offset of external_data");
  if (key == "length") length_ = number_in(value, "a length of external_data");
}

void TensorReader::place_outside(std::optional<std::uint64_t> size) {
  if (!is_confined(tensor_.location))
    reject(FormatError::out_of_bounds, "ONNX: " + describe(tensor_.name) + " lies in " + describe(tensor_.location) +
                                           ", which is not a path inside the folder of the model");
  if (size && length_ && *length_ != *size)
    reject(FormatError::inconsistent, "ONNX: ", describe(tensor_.name), " has ", *length_,
           " bytes outside, but its type and shape need ", *size);
  if (!length_ && !size) reject(FormatError::malformed, "ONNX: " + describe(tensor_.name) + " has no length");
  outside_.length = length_ ? *length_ : *size;
  if (outside_.length > UINT64_MAX - outside_.offset)
    reject(FormatError::out_of_bounds, "ONNX: " + describe(tensor_.name) + " ends beyond byte 2^64");
  tensor_.to_the_end = !length_;
  tensor_.storage = Storage::external;
  tensor_.data = outside_;
}

void TensorReader::place_inside(std::optional<std::uint64_t> size) {
  tensor_.location.clear();
  const bool is_packed = packed_ && coded_.length == 0 && packed_type_ == tensor_.type;
  if (!raw_ && !is_packed && (packed_ || coded_.length != 0 || !size || *size != 0)) {
    tensor_.storage = Storage::coded;
    tensor_.data = coded_.length != 0 ? coded_ : packed_.value_or(ByteRange{});
    if (tensor_.data.length == 0 && size)
      reject(FormatError::inconsistent, "ONNX: ", describe(tensor_.name), " has no data, but its type and shape need ",
             *size, " bytes");
    return;
  }
  tensor_.data = raw_ ? *raw_ : packed_.value_or(ByteRange{});
  if (!size) {
    tensor_.storage = Storage::coded;  // raw bytes of a type that is not known
  } else if (tensor_.data.length != *size) {
    reject(FormatError::inconsistent, "ONNX: ", describe(tensor_.name), " has ", tensor_.data.length,
           " bytes, but its type and shape need ", *size);
  }
}

std::string_view to_string(Storage storage) noexcept {
  switch (storage) {
    case Storage::in_place: return "in place";
    case Storage::external: return "external";
    case Storage::coded: break;
  }
  return "coded";
}

}  // namespace onecopy::onnx
