#include "onecopy/records/record_file.hpp"

#include <array>
#include <utility>

#include "onecopy/base/error.hpp"

namespace onecopy::records {
namespace {

// Gives the nodes of a tree their buffers. Every look at an Entry is here, so every length is checked here.
class Binder {
 public:
  explicit Binder(const ArrayFile& file) : file_(file) {}

  Node bind(const Type& type, std::string path) const {
    Node node;
    node.kind = type.kind;
    node.length = type.length;
    node.type = &type;
    node.path = std::move(path);
    for (std::size_t i = 0; i < type.children.size(); ++i)
      node.children.push_back(bind(type.children[i], child_path(node.path, type, i)));
    if (type.nullable) node.validity = bits(node, "validity");
    buffers(node);
    return node;
  }

 private:
  void buffers(Node& node) const {
    switch (node.kind) {
      case TypeKind::boolean: node.bits = bits(node, "data"); break;
      case TypeKind::integer: node.data = numbers(node, "data", node.length, signed_widths); break;
      case TypeKind::number: node.bits = bits(node, "ints"); [[fallthrough]];
      case TypeKind::real: node.data = numbers(node, "data", node.length, reals); break;
      case TypeKind::bigint:
      case TypeKind::text:
      case TypeKind::bytes: bytes(node); break;
      case TypeKind::list:
      case TypeKind::tuple:
      case TypeKind::map:
        node.items = node.children[0].length;
        node.offsets = numbers(node, "offsets", node.length + 1, offset_widths);
        break;
      case TypeKind::array: array(node); break;
      case TypeKind::record:
        if (node.type->shapes.size() > 1) node.shape = numbers(node, "shape", node.length, unsigned_widths);
        break;
      case TypeKind::choice:
        node.tags = numbers(node, "tag", node.length, tag_widths).first;
        node.offsets = numbers(node, "offsets", node.length, offset_widths);
        break;
      case TypeKind::null:
      case TypeKind::fixed:
      case TypeKind::extension: break;
    }
  }

  static constexpr std::array signed_widths{DType::i8, DType::i16, DType::i32, DType::i64};
  static constexpr std::array unsigned_widths{DType::u8, DType::u16, DType::u32};
  static constexpr std::array offset_widths{DType::i32, DType::i64};
  static constexpr std::array tag_widths{DType::i8};
  static constexpr std::array extents{DType::u64};
  static constexpr std::array reals{DType::f64};
  static constexpr std::array raw{DType::u8};

  void bytes(Node& node) const {
    const Entry& data = entry(node, "data", raw);
    node.items = data.length;
    node.data = {file_.bytes(data).data(), 1};
    node.offsets = numbers(node, "offsets", node.length + 1, offset_widths);
  }

  void array(Node& node) const {
    const Entry& data = entry(node, "data", raw);
    node.items = data.length / node.type->item_size;
    if (data.length % node.type->item_size != 0) wrong(node, "data", "does not end with an item");
    node.data = {file_.bytes(data).data(), 1};
    node.offsets = numbers(node, "offsets", node.length + 1, offset_widths);
    if (node.type->ndim != 1) node.shape = numbers(node, "shape", node.length * node.type->ndim, extents);
  }

  Bits bits(const Node& node, std::string_view buffer) const {
    return {numbers(node, buffer, node.length / 8 + (node.length % 8 != 0 ? 1 : 0), raw).first};
  }

  // `count` is exact: lengths are at most 2^62, and the extents of arrays are asked for after their offsets, of which
  // no file has enough for the product to wrap.
  template <std::size_t N>
  Numbers numbers(const Node& node, std::string_view buffer, std::uint64_t count,
                  const std::array<DType, N>& allowed) const {
    const Entry& found = entry(node, buffer, allowed);
    const unsigned width = bits_of(found.dtype) / 8;
    if (found.length % width != 0 || found.length / width != count)
      wrong(node, buffer, "has " + std::to_string(found.length / width) + " values, not " + std::to_string(count));
    return {file_.bytes(found).data(), width};
  }

  template <std::size_t N>
  const Entry& entry(const Node& node, std::string_view buffer, const std::array<DType, N>& allowed) const {
    const Entry* found = file_.index().find(buffer_name(node.path, buffer));
    if (found == nullptr) wrong(node, buffer, "is not in the file");
    for (const DType dtype : allowed)
      if (found->dtype == dtype) return *found;
    wrong(node, buffer, "has the type " + std::string(to_string(found->dtype)));
  }

  static unsigned bits_of(DType dtype) noexcept { return onecopy::bits(dtype); }

  [[noreturn]] static void wrong(const Node& node, std::string_view buffer, const std::string& what) {
    throw FormatError("the buffer '" + buffer_name(node.path, buffer) + "' " + what);
  }

  const ArrayFile& file_;
};

std::string_view schema_text(const Index& index) {
  if (index.kind() != Kind::records)
    throw FormatError("it holds no records, but " + std::string(to_string(index.kind())));
  const auto found = index.metadata().find("onecopy");
  return found == index.metadata().end() ? std::string_view() : std::string_view(found->second);
}

std::uint64_t payload_of(const ArrayFile& file) {
  std::uint64_t bytes = 0;
  for (const Entry& entry : file.index().entries())
    if (!file.index().is_filler(entry)) bytes += entry.length;
  return bytes;
}

}  // namespace

void Node::damaged(std::uint64_t i) const {
  throw FormatError("'" + path + "': value " + std::to_string(i) + " leads out of its buffers: the file is damaged");
}

RecordFile RecordFile::open(const std::filesystem::path& path, const MappingOptions& options) {
  return of(ArrayFile::open(path, options));
}

RecordFile RecordFile::of(ArrayFile file) {
  const auto state = std::make_shared<State>(State{std::move(file), {}, {}});
  try {
    state->schema = parse_record_schema(schema_text(state->arrays.index()));
    state->rows = Binder(state->arrays).bind(state->schema.rows, "records.0");
  } catch (const FormatError& error) {
    throw error.with_path(state->arrays.mapping()->path());
  }
  return RecordFile(state);
}

std::uint64_t RecordFile::payload() const noexcept { return payload_of(state_->arrays); }

}  // namespace onecopy::records
