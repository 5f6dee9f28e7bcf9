#include "formats/onnx/onnx_tensor.hpp"
#include "formats/wire/protobuf.hpp"
#include "onecopy/formats/onnx.hpp"

namespace onecopy::onnx {
namespace {

using protobuf::Field;
using protobuf::Reader;

// Copies messages, and makes the data of the main graph's initialisers external.
class SkeletonWriter {
 public:
  SkeletonWriter(Bytes file, std::string_view location, std::uint64_t least)
      : file_(file), location_(location), least_(least) {}

  std::string model() {
    std::string text;
    Reader reader(file_, {0, file_.size()});
    while (const auto field = reader.next()) {
      if (field->number == model_field::graph)
        protobuf::append_bytes(text, field->number, graph(field->payload));
      else
        text += protobuf::text_at(file_, field->whole);
    }
    return text;
  }

 private:
  std::string graph(ByteRange message) {
    std::string text;
    Reader reader(file_, message);
    while (const auto field = reader.next()) {
      if (field->number == graph_field::initializer)
        protobuf::append_bytes(text, field->number, tensor(field->payload));
      else
        text += protobuf::text_at(file_, field->whole);
    }
    return text;
  }

  std::string tensor(ByteRange message) {
    TensorReader found(file_, message);
    const auto known = found.finish(std::string(found.own_name()));
    if (known.storage != Storage::in_place || known.data.length < least_ || known.data.length == 0)
      return std::string(protobuf::text_at(file_, message));
    std::string text;
    Reader reader(file_, message);
    while (const auto field = reader.next())
      if (field->number != tensor_field::location && !is_data(*field)) text += protobuf::text_at(file_, field->whole);
    entry(text, "location", location_);
    entry(text, "offset", std::to_string(known.data.offset));
    entry(text, "length", std::to_string(known.data.length));
    protobuf::append_number(text, tensor_field::location, is_external);
    return text;
  }

  static bool is_data(const Field& field) noexcept {
    return field.number == tensor_field::raw || field.number == tensor_field::floats ||
           field.number == tensor_field::doubles || field.number == tensor_field::external;
  }

  static void entry(std::string& into, std::string_view key, std::string_view value) {
    std::string pair;
    protobuf::append_bytes(pair, 1, key);
    protobuf::append_bytes(pair, 2, value);
    protobuf::append_bytes(into, tensor_field::external, pair);
  }

  Bytes file_;
  std::string_view location_;
  std::uint64_t least_;
};

}  // namespace

std::string skeleton(Bytes file, std::string_view location, std::uint64_t least) {
  (void)parse(file);  // throws what there is to throw, once
  return SkeletonWriter(file, location, least).model();
}

}  // namespace onecopy::onnx
