#include "onecopy/formats/onnx.hpp"

#include <map>
#include <set>
#include <utility>

#include "formats/entry_list.hpp"
#include "formats/left_out.hpp"
#include "formats/onnx/onnx_tensor.hpp"
#include "formats/onnx/onnx_types.hpp"
#include "formats/wire/json.hpp"
#include "formats/wire/protobuf.hpp"
#include "formats/work_budget.hpp"
#include "onecopy/base/error.hpp"

namespace onecopy::onnx {
namespace {

using json::describe;
using protobuf::Reader;
using protobuf::Wire;

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

  // A long name of a node stands before each of the tensors in it: a small file must not ask for large memory, or for
  // the time of copying it again and again.
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

}  // namespace onecopy::onnx
