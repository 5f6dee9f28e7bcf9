// Reading ONNX models: finds every tensor of the graph by traversing the protobuf, which is never copied.
//
// Only the constants of a model are read: initialisers of the graph and of its subgraphs, and the values of Constant
// nodes. Raw bytes (`raw_data`, packed `float_data` and `double_data`) can be viewed in place, at any alignment;
// tensors in another file are named, their location confined to the folder of the model; all others, numbers as
// varints, text and sparse tensors, are named under "left out". The Model owns its texts and does not refer to the
// bytes. Pure functions: any thread. https://github.com/onnx/onnx/blob/main/onnx/onnx.proto
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
  coded,     // `data` holds another representation than memory: varints, text, segments
};

std::string_view to_string(Storage storage) noexcept;

struct Tensor {
  std::string name;  // of the main graph as in the file; of others with the prefix "<output of the node>.<attribute>."
  std::int32_t type = 0;       // TensorProto.DataType
  std::optional<DType> dtype;  // none: safetensors has no such type
  std::vector<std::uint64_t> shape;
  Storage storage = Storage::in_place;
  ByteRange data;
  std::string location;         // external: relative to the model's folder, and inside it except for links
  bool to_the_end = false;      // external: no length is given; it follows from type and shape
  bool is_initializer = false;  // of the main graph: a session can use other memory for it
};

struct Model {
  std::int64_t ir_version = 0;
  std::string producer;
  std::map<std::string, std::uint64_t, std::less<>> opsets;  // by domain; "": ONNX's own
  std::map<std::string, std::string, std::less<>> metadata;
  std::vector<Tensor> tensors;      // in the order of the file
  std::vector<std::string> sparse;  // names of sparse tensors, of which nothing else is read
  std::uint64_t nodes = 0;          // of all graphs
};

// Throws FormatError: not a protobuf, no graph, sizes that disagree with type and shape, locations outside the folder,
// graphs too deep. The names of the main graph's initialisers are distinct.
Model parse(Bytes file);

// The tensors that can be viewed in place, as arrays; `metadata` contains the rest: producer, opset, the model's own
// texts, the files of external tensors under "elsewhere", and tensors in neither place under "left out" (left_out.hpp).
Index index(Bytes file);

// True if the bytes begin like a ModelProto of a supported version.
bool is_onnx(Bytes first) noexcept;

// The last bytes of a file of weights prepacked for ONNX Runtime, which only its sessions can read.
inline constexpr std::string_view prepacked_end = "oc-ort-1";

// The model without the data of initialisers of the main graph that are in place and have at least `least` bytes: they
// become external, at their positions in the file of this name, which may be the model itself. Everything else is
// copied unchanged.
std::string skeleton(Bytes file, std::string_view location, std::uint64_t least);

// Bytes of a type and shape; none: text or an unknown type, or more than 64 bits can express.
std::optional<std::uint64_t> size_of(std::int32_t type, const std::vector<std::uint64_t>& shape) noexcept;

// "FLOAT", "INT4", ...; "unknown" for other numbers. A literal.
std::string_view type_name(std::int32_t type) noexcept;

}  // namespace onecopy::onnx
