#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include "bindings.hpp"
#include "onecopy/base/error.hpp"
#include "onecopy/formats/onnx.hpp"

namespace onecopy::bindings {
namespace {

template <class Read>
auto of_mapping(const MappingHandle& handle, const Read& read) {
  const auto mapping = handle.pin();
  const ReleaseGil release;
  return read_whole(*mapping, read);
}

nb::tuple tensor_tuple(const onnx::Tensor& tensor) {
  return nb::make_tuple(tensor.name, onnx::type_name(tensor.type),
                        tensor.dtype ? nb::cast(to_string(*tensor.dtype)) : nb::none(), tensor.shape,
                        onnx::to_string(tensor.storage), tensor.data.offset, tensor.data.length, tensor.location,
                        tensor.is_initializer);
}

nb::dict parse_onnx(const MappingHandle& file) {
  const auto model = of_mapping(file, onnx::parse);
  nb::list tensors;
  for (const auto& tensor : model.tensors) tensors.append(tensor_tuple(tensor));
  nb::dict parts;
  parts["ir_version"] = model.ir_version;
  parts["producer"] = model.producer;
  parts["opsets"] = nb::cast(std::map<std::string, std::uint64_t>(model.opsets.begin(), model.opsets.end()));
  parts["metadata"] = nb::cast(std::map<std::string, std::string>(model.metadata.begin(), model.metadata.end()));
  parts["nodes"] = model.nodes;
  parts["tensors"] = tensors;
  return parts;
}

nb::bytes onnx_skeleton(const MappingHandle& file, const std::string& location, std::uint64_t least) {
  const auto text = of_mapping(file, [&](Bytes bytes) { return onnx::skeleton(bytes, location, least); });
  return nb::bytes(text.data(), text.size());
}

}  // namespace

void bind_formats(nb::module_& module) {
  module.attr("PREPACKED_END") = nb::bytes(onnx::prepacked_end.data(), onnx::prepacked_end.size());
  module.def("parse_onnx", &parse_onnx, nb::arg("file"), nb::sig("def parse_onnx(file: Mapping) -> dict[str, object]"),
             "Return the contents of an ONNX model, with tensors as (name, type, dtype name or None, shape, storage, "
             "offset, bytes, location, whether it is an initializer of the main graph).");
  module.def(
      "onnx_skeleton", &onnx_skeleton, nb::arg("file"), nb::arg("location"), nb::arg("least"),
      "Return the model without the data of its large initializers, which refer to the file `location` instead.");
}

}  // namespace onecopy::bindings
