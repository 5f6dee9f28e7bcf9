#include "onecopy/records/builder.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "onecopy/arrays/array_writer.hpp"
#include "onecopy/base/error.hpp"
#include "onecopy/records/hash_index.hpp"
#include "records/bind.hpp"
#include "records/building/build_space.hpp"
#include "records/building/tensor.hpp"

namespace onecopy::records {
namespace {

struct Extent {
  std::size_t nodes = 0;
  std::size_t depth = 0;
};

Extent extent_of(const Type& type) {
  Extent all{1, 0};
  for (const Type& child : type.children) {
    const auto below = extent_of(child);
    all = {all.nodes + below.nodes, std::max(all.depth, below.depth)};
  }
  return {all.nodes, all.depth + 1};
}

// Refuses what no reader would accept.
void check_extent(const Type& rows) {
  const auto extent = extent_of(rows);
  if (extent.depth > RecordSchema::deepest)
    reject(FormatError::too_costly, "the types of the rows are nested ", extent.depth,
           " deep, more than the maximum of ", RecordSchema::deepest);
  if (extent.nodes > RecordSchema::most_nodes)
    reject(FormatError::too_costly, "the rows have ", extent.nodes, " types, more than the maximum of ",
           RecordSchema::most_nodes);
}

// The index of a dict is built from all of its keys: they are read back, and held in memory meanwhile.
void add_index(const Type& keys, std::vector<Tensor>& tensors) {
  static constexpr std::string_view path = "records.0.0";
  std::map<std::string, std::pair<DType, std::vector<std::byte>>, std::less<>> buffers;
  for (const Tensor& tensor : tensors) {
    if (!tensor.spec.name.starts_with(buffer_name(path, ""))) continue;
    auto& buffer = buffers[tensor.spec.name];
    buffer.first = tensor.spec.dtype;
    tensor.write([&all = buffer.second](Bytes more) { all.insert(all.end(), more.begin(), more.end()); });
  }
  const auto find = [&buffers](const std::string& name) -> std::optional<Buffer> {
    const auto at = buffers.find(name);
    if (at == buffers.end()) return std::nullopt;
    return Buffer{at->second.first, at->second.second};
  };
  auto built = HashIndex::build(bind_nodes(keys, std::string(path), find));
  const auto words = std::make_shared<const std::vector<std::uint64_t>>(std::move(built.words));
  tensors.push_back(
      {{std::string(built.tensor), DType::u64, {words->size() / HashIndex::words_in_line, HashIndex::words_in_line}},
       [words](const ByteSink& sink) { sink(std::as_bytes(std::span(*words))); }});
}

}  // namespace

struct Builder::State {
  explicit State(BuilderOptions given) : options(std::move(given)), space(options.spool), rows(space, "rows") {}

  const Layout& plan() {
    if (layout) return *layout;
    RecordSchema schema{options.container, rows.finish("records.0", tensors)};
    if (options.container == "dict" && rows.length() == 0) {  // pairs, though there is none
      schema.rows.kind = TypeKind::fixed;
      schema.rows.children.resize(2);
    }
    check_extent(schema.rows);
    if (options.container == "dict") add_index(schema.rows.children[0], tensors);
    std::vector<ArraySpec> specs;
    specs.reserve(tensors.size());
    for (const auto& tensor : tensors) specs.push_back(tensor.spec);
    layout = Layout::plan(std::move(specs), {.kind = Kind::records,
                                             .metadata = options.metadata,
                                             .schema = write_schema(schema),
                                             .align = std::nullopt,
                                             .checksum = true});
    return *layout;
  }

  void write(ArrayWriter writer) const {
    for (const auto& placement : writer.layout().placements())
      if (placement.array) tensors[*placement.array].write([&writer](Bytes bytes) { writer.write(bytes); });
    writer.commit();
  }

  BuilderOptions options;
  BuildSpace space;
  Column rows;
  std::vector<Tensor> tensors;
  std::optional<Layout> layout;
};

Builder::Builder(BuilderOptions options) : state_(std::make_unique<State>(std::move(options))) {}
Builder::Builder(Builder&&) noexcept = default;
Builder& Builder::operator=(Builder&&) noexcept = default;
Builder::~Builder() = default;

Column& Builder::rows() & noexcept { return state_->rows; }
std::uint64_t Builder::bytes() const noexcept { return state_->space.size(); }

void Builder::save(const std::filesystem::path& path) { state_->write(ArrayWriter(path, state_->plan())); }

std::uint64_t Builder::finish() { return state_->plan().file_size(); }
void Builder::write(FileWriter& file) { state_->write(ArrayWriter(file, state_->plan())); }

}  // namespace onecopy::records
