// A TensorProto of an ONNX model, and the fields of the messages around it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "formats/wire/protobuf.hpp"
#include "onecopy/formats/onnx.hpp"

namespace onecopy::onnx {

namespace model_field {
inline constexpr std::uint32_t ir_version = 1, producer = 2, graph = 7, opset = 8, metadata = 14;
}
namespace graph_field {
inline constexpr std::uint32_t node = 1, initializer = 5, sparse = 15;
}
namespace node_field {
inline constexpr std::uint32_t output = 2, name = 3, attribute = 5;
}
namespace attribute_field {
inline constexpr std::uint32_t name = 1, tensor = 5, graph = 6, tensors = 10, graphs = 11, sparse = 22, sparses = 23;
}
namespace tensor_field {
inline constexpr std::uint32_t dims = 1, type = 2, segment = 3, floats = 4, name = 8, raw = 9, doubles = 10,
                               external = 13, location = 14;
inline constexpr std::array<std::uint32_t, 4> coded{5, 6, 7, 11};  // int32_data, string_data, int64_data, uint64_data
}  // namespace tensor_field
inline constexpr std::uint64_t is_external = 1;  // TensorProto.DataLocation

// The field, if it is of that wire type; else throws FormatError.
protobuf::Field expect(const protobuf::Field& field, protobuf::Wire wire, std::string_view what);
std::string_view text_of(Bytes file, const protobuf::Field& field, std::string_view what);

// Reads the fields of the message, which come in any order; `finish` holds them against each other.
class TensorReader {
 public:
  TensorReader(Bytes file, ByteRange message);

  std::string_view own_name() const noexcept { return name_; }
  Tensor finish(std::string name);

 private:
  void read(const protobuf::Reader& reader, const protobuf::Field& field);
  void add_extent(std::uint64_t extent);
  void take_raw(const protobuf::Field& field);
  void packed(const protobuf::Field& field, std::int32_t type);
  void coded(const protobuf::Field& field);
  void read_entry(ByteRange message);
  void place_outside(std::optional<std::uint64_t> size);
  void place_inside(std::optional<std::uint64_t> size);

  Bytes file_;
  Tensor tensor_;
  std::string_view name_;
  bool external_ = false;
  std::optional<ByteRange> raw_;
  std::optional<ByteRange> packed_;
  std::int32_t packed_type_ = 0;
  ByteRange coded_;
  ByteRange outside_;
  std::optional<std::uint64_t> length_;
};

}  // namespace onecopy::onnx
