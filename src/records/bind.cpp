#include "records/bind.hpp"

#include <array>
#include <utility>

#include "onecopy/base/error.hpp"

namespace onecopy::records {
namespace {

// Assigns buffers to the nodes of a tree. Every buffer is accessed here, so every length is checked here.
class Binder {
 public:
  Binder(const FindBuffer& find, std::string root) : find_(find), path_(std::move(root)) {}

  Node bind(const Type& type, std::shared_ptr<const NodePlace> place) {
    Node node;
    node.kind = type.kind;
    node.length = type.length;
    node.type = &type;
    node.place = std::move(place);
    node.children.reserve(type.children.size());
    const std::size_t end = path_.size();
    for (std::size_t i = 0; i < type.children.size(); ++i) {
      path_ += "." + child_name(type, i);
      node.children.push_back(bind(type.children[i], std::make_shared<NodePlace>(NodePlace{node.place, &type, i, {}})));
      path_.resize(end);
    }
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
    const Buffer data = buffer(node, "data", raw);
    node.items = data.bytes.size();
    node.data = {data.bytes.data(), 1};
    node.offsets = numbers(node, "offsets", node.length + 1, offset_widths);
  }

  void array(Node& node) const {
    const Buffer data = buffer(node, "data", raw);
    node.items = data.bytes.size() / node.type->item_size;
    if (data.bytes.size() % node.type->item_size != 0) wrong(node, "data", "does not consist of whole items");
    node.data = {data.bytes.data(), 1};
    node.offsets = numbers(node, "offsets", node.length + 1, offset_widths);
    if (node.type->ndim != 1) node.shape = numbers(node, "shape", node.length * node.type->ndim, extents);
  }

  Bits bits(const Node& node, std::string_view buffer) const {
    return {numbers(node, buffer, node.length / 8 + (node.length % 8 != 0 ? 1 : 0), raw).first};
  }

  // `count` is exact: lengths are at most 2^62, and the extents of arrays are read after their offsets, of which no
  // file has enough for the product to wrap.
  template <std::size_t N>
  Numbers numbers(const Node& node, std::string_view buffer, std::uint64_t count,
                  const std::array<DType, N>& allowed) const {
    const Buffer found = this->buffer(node, buffer, allowed);
    const unsigned width = bits_of(found.dtype) / 8;
    if (found.bytes.size() % width != 0 || found.bytes.size() / width != count)
      wrong(node, buffer, concat("has ", found.bytes.size() / width, " values instead of ", count));
    return {found.bytes.data(), width};
  }

  template <std::size_t N>
  Buffer buffer(const Node& node, std::string_view buffer, const std::array<DType, N>& allowed) const {
    const auto found = find_(buffer_name(path_, buffer));
    if (!found) wrong(node, buffer, "is missing from the file");
    for (const DType dtype : allowed)
      if (found->dtype == dtype) return *found;
    wrong(node, buffer, "has the unexpected type " + std::string(to_string(found->dtype)));
  }

  static unsigned bits_of(DType dtype) noexcept { return onecopy::bits(dtype); }

  [[noreturn]] static void wrong(const Node& node, std::string_view buffer, const std::string& what) {
    reject(FormatError::malformed, "the buffer '" + buffer_name(node.path(), buffer) + "' " + what);
  }

  const FindBuffer& find_;
  std::string path_;  // of the node that is being bound
};

constexpr std::size_t longest_shown = 100;  // bytes of a name in an error

std::string shortened(const std::string& name) {
  return name.size() <= longest_shown ? name : name.substr(0, longest_shown) + "...";
}

}  // namespace

Node bind_nodes(const Type& type, std::string path, const FindBuffer& find) {
  auto root = std::make_shared<NodePlace>(NodePlace{nullptr, nullptr, 0, path});
  return Binder(find, std::move(path)).bind(type, std::move(root));
}

std::string NodePlace::path() const {
  return above == nullptr ? root : above->path() + "." + shortened(child_name(*parent, child));
}

void Node::damaged(std::uint64_t i) const {
  reject(FormatError::out_of_bounds, "'", path(), "': value ", i,
         " refers to data outside of its buffers: the file is damaged");
}

}  // namespace onecopy::records
