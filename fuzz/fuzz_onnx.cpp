// Any bytes: refused with a FormatError, or accepted, and then every tensor lies where the model says, inside the file
// or outside the folder's reach, and its skeleton is a model with the same tensors.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "formats/wire/json.hpp"
#include "onecopy/base/error.hpp"
#include "onecopy/formats/onnx.hpp"

namespace {

void expect(bool truth) {
  if (!truth) std::abort();
}

bool stays_inside(const std::string& location) {
  const auto path = std::filesystem::path("/folder/of/models") / location;
  return path.lexically_normal().string().starts_with("/folder/of/models");
}

std::uint64_t touch(const onecopy::onnx::Tensor& tensor, onecopy::Bytes file) {
  expect(onecopy::json::is_utf8(tensor.name));
  std::uint64_t sum = tensor.name.size() + onecopy::onnx::type_name(tensor.type).size();
  if (tensor.storage == onecopy::onnx::Storage::external) {
    expect(stays_inside(tensor.location));
    expect(tensor.data.offset <= UINT64_MAX - tensor.data.length);
    return sum;
  }
  expect(onecopy::in_bounds(file.size(), tensor.data.offset, tensor.data.length));
  for (const std::byte byte : file.subspan(tensor.data.offset, tensor.data.length))
    sum += std::to_integer<std::uint64_t>(byte);
  if (tensor.storage == onecopy::onnx::Storage::in_place)
    expect(onecopy::onnx::size_of(tensor.type, tensor.shape) == tensor.data.length);
  return sum;
}

std::uint64_t touch(const onecopy::onnx::Model& model, onecopy::Bytes file) {
  std::uint64_t sum = model.nodes;
  for (const auto& tensor : model.tensors) sum += touch(tensor, file);
  return sum;
}

// What the arrays of the file are, from the index; the same as from the model.
std::uint64_t in_place(const onecopy::Index& index, onecopy::Bytes file) {
  std::uint64_t bytes = 0;
  for (const auto& entry : index.entries()) {
    expect(onecopy::in_bounds(file.size(), entry.offset, entry.length));
    expect(index.find(entry.name) == &entry);
    bytes += entry.length;
  }
  return bytes;
}

std::uint64_t in_place(const onecopy::onnx::Model& model) {
  std::uint64_t bytes = 0;
  for (const auto& tensor : model.tensors)
    if (tensor.storage == onecopy::onnx::Storage::in_place) bytes += tensor.data.length;
  return bytes;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // A copy of exactly this size, so that the address sanitizer sees one byte too far.
  const std::vector<std::byte> file(reinterpret_cast<const std::byte*>(data),
                                    reinterpret_cast<const std::byte*>(data) + size);
  try {
    const auto model = onecopy::onnx::parse(file);
    expect(touch(model, file) == touch(onecopy::onnx::parse(file), file));
    const auto light = onecopy::onnx::skeleton(file, "model.onnx", 1);
    const auto again = onecopy::onnx::parse(std::as_bytes(std::span(light.data(), light.size())));
    expect(again.tensors.size() == model.tensors.size());
    for (std::size_t i = 0; i < again.tensors.size(); ++i) {
      expect(again.tensors[i].name == model.tensors[i].name && again.tensors[i].shape == model.tensors[i].shape);
    }
    expect(in_place(onecopy::onnx::index(file), file) == in_place(model));  // refused where two arrays have one name
  } catch (const onecopy::FormatError& error) {
    expect(onecopy::json::is_utf8(error.what()));  // a message that can be shown
  }
  return 0;
}
