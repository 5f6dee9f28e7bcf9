#include "onecopy/formats/ort.hpp"

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "formats/entry_list.hpp"
#include "formats/left_out.hpp"
#include "formats/onnx/onnx_types.hpp"
#include "formats/signatures.hpp"
#include "formats/wire/flatbuffer.hpp"
#include "formats/wire/json.hpp"
#include "onecopy/base/error.hpp"
#include "onecopy/formats/onnx.hpp"

namespace onecopy::ort {
namespace {

using flatbuffer::Table;
using json::describe;

// Fields by their places in ort.fbs.
namespace session_field {
constexpr unsigned version = 0, model = 1;
}
namespace model_field {
constexpr unsigned producer_name = 2, producer_version = 3, graph = 7;
}
namespace graph_field {
constexpr unsigned initializers = 0, nodes = 2, sparse_initializers = 7;
}
namespace node_field {
constexpr unsigned name = 0, outputs = 9, attributes = 10;
}
namespace attribute_field {
constexpr unsigned name = 0, tensor = 6, graph = 7, tensors = 11, graphs = 12;
}
namespace sparse_field {
constexpr unsigned values = 0;
}
namespace tensor_field {
constexpr unsigned name = 0, dims = 2, type = 3, raw = 4, external = 6;
}

class ModelReader {
 public:
  explicit ModelReader(Bytes file) : file_(file), buffer_(file) {}

  Index read() {
    const auto session = buffer_.root();
    const auto model = session.table(session_field::model);
    if (!model) reject(FormatError::malformed, "ORT: the session has no model");
    const auto graph = model->table(model_field::graph);
    if (!graph) reject(FormatError::malformed, "ORT: the model has no graph");
    read_graph(*graph, "", 0);
    entries_.reject_overlaps();
    return std::move(entries_).finish_at_first("ort", metadata(session, *model), file_.size());
  }

 private:
  std::map<std::string, std::string, std::less<>> metadata(const Table& session, const Table& model) const {
    std::map<std::string, std::string, std::less<>> found;
    found["ort_version"] = session.text(session_field::version);
    std::string producer(model.text(model_field::producer_name));
    if (const auto version = model.text(model_field::producer_version); !version.empty())
      producer += (producer.empty() ? "" : " ") + std::string(version);
    found["producer"] = producer;
    left_out_.report(found);
    return found;
  }

  void read_graph(const Table& graph, const std::string& prefix, int depth) {
    if (depth > deepest_graph)
      reject(FormatError::too_costly, "ORT: graphs are nested more than ", deepest_graph, " deep");
    const auto initializers = graph.offsets(graph_field::initializers);
    for (std::uint32_t i = 0; i < initializers.size(); ++i) read_tensor(initializers.table(i), prefix);
    const auto sparse = graph.offsets(graph_field::sparse_initializers);
    for (std::uint32_t i = 0; i < sparse.size(); ++i) leave_out_sparse(sparse.table(i), prefix);
    const auto nodes = graph.offsets(graph_field::nodes);
    for (std::uint32_t i = 0; i < nodes.size(); ++i) read_node(nodes.table(i), prefix, depth);
  }

  void leave_out_sparse(const Table& sparse, const std::string& prefix) {
    const auto values = sparse.table(sparse_field::values);
    auto name = prefix + std::string(values ? values->text(tensor_field::name) : "");
    buffer_.spend(name.size());
    left_out_.add("sparse", std::move(name));
  }

  void read_node(const Table& node, const std::string& prefix, int depth) {
    const auto attributes = node.offsets(node_field::attributes);
    for (std::uint32_t i = 0; i < attributes.size(); ++i) read_attribute(attributes.table(i), node, prefix, depth);
  }

  // Most attributes are numbers; of the others one field has a value.
  void read_attribute(const Table& attribute, const Table& node, const std::string& prefix, int depth) {
    const auto tensor = attribute.table(attribute_field::tensor);
    const auto graph = attribute.table(attribute_field::graph);
    const auto tensors = attribute.offsets(attribute_field::tensors);
    const auto graphs = attribute.offsets(attribute_field::graphs);
    if (!tensor && !graph && tensors.size() == 0 && graphs.size() == 0) return;
    const auto path = prefix + name_of(node) + '.' + std::string(attribute.text(attribute_field::name)) + '.';
    buffer_.spend(path.size());
    if (tensor) read_tensor(*tensor, path);
    for (std::uint32_t i = 0; i < tensors.size(); ++i) read_tensor(tensors.table(i), path);
    if (graph) read_graph(*graph, path, depth + 1);
    for (std::uint32_t i = 0; i < graphs.size(); ++i) read_graph(graphs.table(i), path, depth + 1);
  }

  static std::string name_of(const Table& node) {
    const auto name = node.text(node_field::name);
    if (!name.empty()) return std::string(name);
    const auto outputs = node.offsets(node_field::outputs);
    return outputs.size() == 0 ? std::string() : std::string(outputs.text(0));
  }

  void read_tensor(const Table& tensor, const std::string& prefix) {
    auto name = name_for(prefix + std::string(tensor.text(tensor_field::name)), prefix.empty());
    const auto type = tensor.number<std::int32_t>(tensor_field::type);
    const auto* facts = onnx::facts_of(type);
    if (facts == nullptr || facts->bits == 0) {
      left_out_.add(type == onnx::text_type ? "of text" : "of an unknown type", std::move(name));
      return;
    }
    const auto shape = tensor.vector(tensor_field::dims, sizeof(std::int64_t)).extents<std::int64_t>();
    if (!shape) reject(FormatError::malformed, "ORT: ", describe(name), " has a negative extent");
    const auto size = onnx::size_of(type, *shape);
    if (!size) reject(FormatError::out_of_bounds, "ORT: the shape of " + describe(name) + " needs more than 2^64 bits");
    const auto data = place(tensor, name, *size);
    if (!data) return;
    const bool has_dtype = facts->dtype && fills_bytes(*facts, *shape, *size);
    entries_.add({.name = std::move(name),
                  .dtype = has_dtype ? *facts->dtype : DType::u8,
                  .raw_type = has_dtype ? "" : facts->name,
                  .shape = *shape,
                  .data = *data});
  }

  // Initialisers of the main graph, which are read first, have names of their own. Nodes may share a name.
  std::string name_for(std::string name, bool is_of_main_graph) {
    buffer_.spend(name.size());
    if (!is_of_main_graph) return names_.add_numbered(name);
    if (!names_.add(name)) reject(FormatError::inconsistent, "ORT: two initializers have the name ", describe(name));
    return name;
  }

  // None: the bytes are not in this file.
  std::optional<ByteRange> place(const Table& tensor, const std::string& name, std::uint64_t size) {
    const auto data = tensor.vector(tensor_field::raw, 1).range();
    if (data.length == size) return data;
    if (data.length == 0 && tensor.number<std::int64_t>(tensor_field::external, -1) >= 0) {
      left_out_.add("in another file", name);
      return std::nullopt;
    }
    reject(FormatError::inconsistent, "ORT: ", describe(name), " has ", data.length,
           " bytes, but its type and shape need ", size);
  }

  // Elements of 4 bits that do not fill their last byte have no DType, because the elements of a DType do.
  static bool fills_bytes(const onnx::TypeFacts& facts, const std::vector<std::uint64_t>& shape, std::uint64_t size) {
    std::uint64_t bits = size == 0 ? 0 : facts.bits;  // of a product that size_of has seen to fit
    for (const std::uint64_t extent : shape) bits *= extent;
    return bits % 8 == 0;
  }

  Bytes file_;
  flatbuffer::Buffer buffer_;
  EntryList entries_;
  LeftOut left_out_;
  DistinctNames names_;
};

}  // namespace

bool is_ort(Bytes file) noexcept { return signatures::ort.is_in(file); }

Index parse(Bytes file) {
  if (!is_ort(file))
    reject(FormatError::not_this_format, "ORT: the file does not begin with an offset and the identifier 'ORTM'");
  return ModelReader(file).read();
}

}  // namespace onecopy::ort
