// The tree of types of a records file as Python sees it: for `onecopy ls`.
#include <nanobind/stl/string.h>

#include "bindings.hpp"
#include "onecopy/records/record_file.hpp"
#include "records/rows.hpp"

namespace onecopy::bindings {
namespace {

// How a node is called in its parent's words: a field by its name, the others by the end of their paths.
std::string name_of(const records::Node& parent, std::size_t child) {
  if (parent.kind == records::TypeKind::record) return parent.type->fields[child];
  const std::string& path = parent.children[child].path;
  return path.substr(path.rfind('.') + 1);
}

std::string kind_of(const records::Node& node) {
  std::string kind(to_string(node.kind));
  if (node.type != nullptr && !node.type->name.empty()) kind += " " + node.type->name;
  return kind;
}

void describe(const records::Node& node, const std::string& name, int depth, nb::list& nodes) {
  nodes.append(nb::make_tuple(depth, text_of(name), text_of(kind_of(node)), node.length, node.validity.first != nullptr,
                              text_of(node.path)));
  for (std::size_t child = 0; child < node.children.size(); ++child)
    describe(node.children[child], name_of(node, child), depth + 1, nodes);
}

}  // namespace

void bind_record_types(nb::module_& module) {
  module.def(
      "describe_records",
      [](const RecordSource& source) {
        nb::list nodes;
        describe(source.file.rows(), "row", 0, nodes);
        return nodes;
      },
      nb::arg("source"),
      nb::sig("def describe_records(source: RecordSource) -> list[tuple[int, str, str, int, bool, str]]"),
      "Each place in the data, parents first: depth, name, kind, values, whether some are None, path in the file.");
}

}  // namespace onecopy::bindings
