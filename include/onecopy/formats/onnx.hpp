// Reading ONNX models: where every tensor of the graph lies, found by walking the protobuf, which is never copied.
//
// A model is code for an engine and constants for its kernels. Only the constants are of interest here: initialisers of
// the graph and of its subgraphs, and the values of Constant nodes. What is stored as raw bytes (`raw_data`, packed
// `float_data` and `double_data`) can be looked at in place, at whatever address it has; what lies in another file is
// named, its location confined to the folder of the model; the rest, numbers as varints and text, is counted.
// https://github.com/onnx/onnx/blob/main/onnx/onnx.proto
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "onecopy/base/bytes.hpp"
#include "onecopy/base/dtype.hpp"
#include "onecopy/formats/index.hpp"

namespace onecopy::onnx {

inline constexpr int deepest_graph = 32;  // subgraphs inside each other

enum class Storage : std::uint8_t {
  in_place,  // `data` of this file
  external,  // `location`, and `data` there
  coded,     // `data` holds it in another form than memory has: varints, text, segments
};

std::string_view to_string(Storage storage) noexcept;

struct Tensor {
  std::string name;       // of the main graph as it stands there; of others behind "<output of the node>.<attribute>."
  std::int32_t type = 0;  // TensorProto.DataType
  std::optional<DType> dtype;  // none: safetensors has no such type
  std::vector<std::uint64_t> shape;
  Storage storage = Storage::in_place;
  ByteRange data;
  std::string location;         // external: relative to the model's folder, and inside it
  bool to_the_end = false;      // external: no length is given; the bytes that type and shape ask for follow
  bool is_initializer = false;  // of the main graph: a session can be given another memory for it
};

struct Model {
  std::int64_t ir_version = 0;
  std::string producer;
  std::map<std::string, std::uint64_t, std::less<>> opsets;  // by domain; "": ONNX's own
  std::map<std::string, std::string, std::less<>> metadata;
  std::vector<Tensor> tensors;  // in the order of the file
  std::uint64_t nodes = 0;      // of all graphs
};

// Throws FormatError: no protobuf, no graph, sizes that disagree with type and shape, locations that lead out of the
// folder, graphs too deep. The names of the main graph's initialisers are distinct.
Model parse(Bytes file);

// What can be looked at in place, as arrays; `metadata` has the rest: producer, opset, the model's own texts, and under
// "elsewhere" the files that hold the other tensors.
Index index(Bytes file);

// True when the bytes begin as a ModelProto of any version that this reader knows does.
bool is_onnx(Bytes first) noexcept;

// The last bytes of a file of weights that were prepacked for ONNX Runtime, which only its sessions read.
inline constexpr std::string_view prepacked_end = "oc-ort-1";

// The model without the data of initialisers of the main graph that are in place and have at least `least` bytes: they
// are external, at their places in a file of this name, which may be the model itself. Everything else is copied as it
// stands.
std::string skeleton(Bytes file, std::string_view location, std::uint64_t least);

// Bytes of a type and shape; none: text or an unknown type, or more than 64 bits can say.
std::optional<std::uint64_t> size_of(std::int32_t type, const std::vector<std::uint64_t>& shape) noexcept;

// "FLOAT", "INT4", ...; "unknown" for what this reader does not know. A literal.
std::string_view type_name(std::int32_t type) noexcept;

}  // namespace onecopy::onnx
