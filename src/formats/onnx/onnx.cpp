#include "onecopy/formats/onnx.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <set>
#include <system_error>
#include <utility>

#include "formats/entry_list.hpp"
#include "formats/left_out.hpp"
#include "formats/onnx/onnx_types.hpp"
#include "formats/wire/json.hpp"
#include "formats/wire/protobuf.hpp"
#include "formats/work_budget.hpp"
#include "onecopy/base/error.hpp"

namespace onecopy::onnx {
namespace {

using json::describe;
using protobuf::Field;
using protobuf::Reader;
using protobuf::Wire;

namespace model_field {
constexpr std::uint32_t ir_version = 1, producer = 2, graph = 7, opset = 8, metadata = 14;
}
namespace graph_field {
constexpr std::uint32_t node = 1, initializer = 5, sparse = 15;
}
namespace node_field {
constexpr std::uint32_t output = 2, name = 3, attribute = 5;
}
namespace attribute_field {
constexpr std::uint32_t name = 1, tensor = 5, graph = 6, tensors = 10, graphs = 11, sparse = 22, sparses = 23;
}
namespace tensor_field {
constexpr std::uint32_t dims = 1, type = 2, segment = 3, floats = 4, name = 8, raw = 9, doubles = 10, external = 13,
                        location = 14;
constexpr std::array<std::uint32_t, 4> coded{5, 6, 7, 11};  // int32_data, string_data, int64_data, uint64_data
}  // namespace tensor_field
constexpr std::uint64_t is_external = 1;  // TensorProto.DataLocation

constexpr std::int32_t float_type = 1;
constexpr std::int32_t double_type = 11;

// A number that no type has stands for all numbers beyond those of types.
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

// The field, if it is of that wire type; else throws FormatError.
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

// A TensorProto: reads the fields of the message, which come in any order; `finish` compares them.
class TensorReader {
 public:
  TensorReader(Bytes file, ByteRange message) : file_(file) {
    Reader reader(file, message);
    while (const auto field = reader.next()) read(reader, *field);
  }

  std::string_view own_name() const noexcept { return name_; }

  Tensor finish(std::string name) {
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

 private:
  void read(const Reader& reader, const Field& field) {
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

  void add_extent(std::uint64_t extent) {
    if (extent > INT64_MAX) reject(FormatError::malformed, "ONNX: a tensor has a negative extent");
    tensor_.shape.push_back(extent);
  }

  void take_raw(const Field& field) {
    if (raw_) reject(FormatError::inconsistent, "ONNX: a tensor has raw_data twice");
    raw_ = field.payload;
  }

  // Numbers of four or eight bytes one after the other are what memory holds; in pieces they are not.
  void packed(const Field& field, std::int32_t type) {
    if (field.wire == Wire::bytes && !packed_ && coded_.length == 0) {
      packed_ = field.payload;
      packed_type_ = type;
    } else {
      coded(field);
    }
  }

  void coded(const Field& field) {
    if (coded_.length == 0) coded_ = field.whole;
    coded_.length = field.whole.offset + field.whole.length - coded_.offset;
  }

  void read_entry(ByteRange message) {
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

  void place_outside(std::optional<std::uint64_t> size) {
    if (!is_confined(tensor_.location))
      reject(FormatError::out_of_bounds, "ONNX: " + describe(tensor_.name) + " is in " + describe(tensor_.location) +
                                             ", which is not a path inside the model's folder");
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

  void place_inside(std::optional<std::uint64_t> size) {
    tensor_.location.clear();
    const bool is_packed = packed_ && coded_.length == 0 && packed_type_ == tensor_.type;
    if (!raw_ && !is_packed && (packed_ || coded_.length != 0 || !size || *size != 0)) {
      tensor_.storage = Storage::coded;
      tensor_.data = coded_.length != 0 ? coded_ : packed_.value_or(ByteRange{});
      if (tensor_.data.length == 0 && size)
        reject(FormatError::inconsistent, "ONNX: ", describe(tensor_.name),
               " has no data, but its type and shape need ", *size, " bytes");
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

class ModelReader {
 public:
  explicit ModelReader(Bytes file) : file_(file), name_bytes_(budget_for_names(file)) {}

  Model read() {
    Reader reader(file_, {0, file_.size()});
    bool has_graph = false;
    while (const auto field = reader.next()) {
      switch (field->number) {
        case model_field::ir_version:
          model_.ir_version = static_cast<std::int64_t>(expect(*field, Wire::varint, "ir_version").value);
          break;
        case model_field::producer: model_.producer = text_of(file_, *field, "the producer's name"); break;
        case model_field::opset: read_opset(expect(*field, Wire::bytes, "an opset").payload); break;
        case model_field::metadata: read_metadata(expect(*field, Wire::bytes, "metadata").payload); break;
        case model_field::graph:
          if (std::exchange(has_graph, true)) reject(FormatError::inconsistent, "ONNX: the model has two graphs");
          read_graph(expect(*field, Wire::bytes, "the graph").payload, "", 0);
          break;
        default: break;
      }
    }
    if (!has_graph) reject(FormatError::not_this_format, "ONNX: the model has no graph (is this an ONNX file?)");
    return std::move(model_);
  }

 private:
  void read_opset(ByteRange message) {
    Reader reader(file_, message);
    std::string domain;
    std::uint64_t version = 0;
    while (const auto field = reader.next()) {
      if (field->number == 1) domain = text_of(file_, *field, "an opset's domain");
      if (field->number == 2) version = expect(*field, Wire::varint, "an opset's version").value;
    }
    model_.opsets.insert_or_assign(std::move(domain), version);
  }

  void read_metadata(ByteRange message) {
    Reader reader(file_, message);
    std::string key;
    std::string value;
    while (const auto field = reader.next()) {
      if (field->number == 1) key = text_of(file_, *field, "a key of the metadata");
      if (field->number == 2) value = text_of(file_, *field, "a value of the metadata");
    }
    model_.metadata.insert_or_assign(std::move(key), std::move(value));
  }

  void read_graph(ByteRange message, const std::string& prefix, int depth) {
    if (depth > deepest_graph)
      reject(FormatError::too_costly, "ONNX: graphs are nested more than ", deepest_graph, " deep");
    Reader reader(file_, message);
    while (const auto field = reader.next()) {
      if (field->number == graph_field::node)
        read_node(expect(*field, Wire::bytes, "a node").payload, prefix, depth);
      else if (field->number == graph_field::initializer)
        read_initializer(expect(*field, Wire::bytes, "an initializer").payload, prefix);
      else if (field->number == graph_field::sparse)
        read_sparse(expect(*field, Wire::bytes, "a sparse initializer").payload, prefix);
    }
  }

  void read_initializer(ByteRange message, const std::string& prefix) {
    TensorReader reader(file_, message);
    auto tensor = reader.finish(prefix + std::string(reader.own_name()));
    tensor.is_initializer = prefix.empty();
    if (tensor.is_initializer && !names_.insert(tensor.name).second)
      reject(FormatError::inconsistent, "ONNX: two initializers have the name " + describe(tensor.name));
    keep(std::move(tensor));
  }

  // Its values have its name.
  void read_sparse(ByteRange message, std::string name) {
    Reader reader(file_, message);
    while (const auto field = reader.next())
      if (field->number == 1) name += TensorReader(file_, expect(*field, Wire::bytes, "its values").payload).own_name();
    name_bytes_.spend(name.size());
    model_.sparse.push_back(std::move(name));
  }

  // A node's name, which may be long, precedes the name of each tensor in it: a small file must not cause large
  // allocations or repeated copies.
  static WorkBudget budget_for_names(Bytes file) {
    constexpr std::uint64_t times = 8;
    return {file.size() * times, "ONNX: the names of nodes and tensors, put together, are " + std::to_string(times) +
                                     " times as long as the file"};
  }

  void keep(Tensor tensor) {
    name_bytes_.spend(tensor.name.size());
    model_.tensors.push_back(std::move(tensor));
  }

  void read_node(ByteRange message, const std::string& prefix, int depth) {
    ++model_.nodes;
    Reader reader(file_, message);
    std::string_view name;
    std::string_view output;
    std::vector<ByteRange> attributes;
    while (const auto field = reader.next()) {
      if (field->number == node_field::name) name = text_of(file_, *field, "a node's name");
      if (field->number == node_field::output && output.empty()) output = text_of(file_, *field, "a node's output");
      if (field->number == node_field::attribute)
        attributes.push_back(expect(*field, Wire::bytes, "an attribute").payload);
    }
    for (const ByteRange& attribute : attributes)
      read_attribute(attribute, prefix, output.empty() ? name : output, depth);
  }

  void read_attribute(ByteRange message, const std::string& prefix, std::string_view node, int depth) {
    Reader reader(file_, message);
    std::string_view name;
    std::vector<ByteRange> graphs;
    std::vector<ByteRange> tensors;
    std::vector<ByteRange> sparse;
    while (const auto field = reader.next()) {
      if (field->number == attribute_field::name) name = text_of(file_, *field, "an attribute's name");
      if (field->number == attribute_field::graph || field->number == attribute_field::graphs)
        graphs.push_back(expect(*field, Wire::bytes, "a graph").payload);
      if (field->number == attribute_field::tensor || field->number == attribute_field::tensors)
        tensors.push_back(expect(*field, Wire::bytes, "a tensor").payload);
      if (field->number == attribute_field::sparse || field->number == attribute_field::sparses)
        sparse.push_back(expect(*field, Wire::bytes, "a sparse tensor").payload);
    }
    if (tensors.empty() && graphs.empty() && sparse.empty()) return;
    name_bytes_.spend(prefix.size() + node.size() + name.size());
    const auto place = prefix + std::string(node) + '.' + std::string(name);
    for (const ByteRange& tensor : tensors) {
      TensorReader found(file_, tensor);
      keep(found.finish(found.own_name().empty() ? place : place + '.' + std::string(found.own_name())));
    }
    for (const ByteRange& tensor : sparse) read_sparse(tensor, place + '.');
    for (const ByteRange& graph : graphs) read_graph(graph, place + '.', depth + 1);
  }

  Bytes file_;
  Model model_;
  WorkBudget name_bytes_;
  std::set<std::string, std::less<>> names_;
};

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

std::string_view why_left_out(const Tensor& tensor) noexcept {
  if (tensor.type == text_type) return "of text";
  return facts_of(tensor.type) == nullptr ? "of an unknown type" : "not stored as raw bytes";
}

}  // namespace

bool is_onnx(Bytes first) noexcept {
  // ir_version is written first, a small number, and a field that a model has after it.
  constexpr unsigned highest_ir = 0x40;
  if (first.size() < 3 || first[0] != std::byte{0x08} || std::to_integer<unsigned>(first[1]) > highest_ir) return false;
  const auto tag = std::to_integer<unsigned>(first[2]);
  return tag == (model_field::producer << 3U | 2U) || tag == (model_field::graph << 3U | 2U) ||
         tag == (model_field::opset << 3U | 2U) || tag == (model_field::metadata << 3U | 2U) ||
         (tag >> 3U >= 3 && tag >> 3U <= 6);  // version, domain, model_version, doc_string
}

Index index(Bytes file) {
  auto model = parse(file);
  auto metadata = std::move(model.metadata);
  if (!model.producer.empty()) metadata.insert_or_assign("producer", model.producer);
  for (const auto& [domain, version] : model.opsets)
    metadata.insert_or_assign(domain.empty() ? "opset" : "opset " + domain, std::to_string(version));
  std::set<std::string> elsewhere;
  for (const auto& tensor : model.tensors)
    if (tensor.storage == Storage::external) elsewhere.insert(tensor.location);
  std::string files;
  for (const auto& name : elsewhere) files += (files.empty() ? "" : ", ") + name;
  if (!files.empty()) metadata.insert_or_assign("elsewhere", files);
  EntryList entries;
  DistinctNames names;  // nodes may share a name
  for (const auto& tensor : model.tensors)
    if (tensor.is_initializer) names.add(tensor.name);
  LeftOut left_out;
  for (auto& name : model.sparse) left_out.add("sparse", std::move(name));
  for (const auto& tensor : model.tensors) {
    if (tensor.storage == Storage::coded) left_out.add(why_left_out(tensor), tensor.name);
    if (tensor.storage != Storage::in_place) continue;
    entries.add({.name = tensor.is_initializer ? tensor.name : names.add_numbered(tensor.name),
                 .dtype = tensor.dtype.value_or(DType::u8),
                 .raw_type = tensor.dtype ? "" : type_name(tensor.type),
                 .shape = tensor.shape,
                 .data = tensor.data});
  }
  left_out.report(metadata);
  return std::move(entries).finish_at_first("onnx", std::move(metadata), file.size());
}

Model parse(Bytes file) { return ModelReader(file).read(); }

std::string skeleton(Bytes file, std::string_view location, std::uint64_t least) {
  (void)parse(file);  // throws any error once, before copying
  return SkeletonWriter(file, location, least).model();
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
