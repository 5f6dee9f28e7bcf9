// An ONNX Runtime session whose weights stay in the mapped file: onnxruntime_direct MODEL.onnx
//
// The C++ side of `oc.onnxruntime.session(path, "direct")`. The message without its data says that the weights are in
// another file, at the places where they lie in this one; that file is the mapping. Built where ONNX Runtime's headers
// and library are installed (find_package(onnxruntime), or -DONNXRUNTIME_INCLUDE=... -DONNXRUNTIME_LIBRARY=...).
#include <onnxruntime_cxx_api.h>

#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "onecopy/files/mapping.hpp"
#include "onecopy/formats/onnx.hpp"

namespace {

constexpr std::uint64_t smallest = 1024;  // bytes; what is smaller stays in the message, and is copied

// The session looks into the mapping, which therefore lives longer.
Ort::Session open_direct(const Ort::Env& env, const onecopy::Mapping& file) {
  const std::string message = onecopy::onnx::skeleton(file.bytes(), "weights", smallest);
  Ort::SessionOptions options;
  options.SetIntraOpNumThreads(1);
  options.AddConfigEntry("session.disable_prepacking", "1");  // packing copies
  options.AddConfigEntry("session.use_external_initializer_file_buffers_directly", "1");
  const std::vector<std::basic_string<ORTCHAR_T>> names{"weights"};
  // ONNX Runtime asks for char*, and reads.
  const std::vector<char*> buffers{
      const_cast<char*>(reinterpret_cast<const char*>(file.bytes().data()))};  // NOLINT: as above
  const std::vector<std::size_t> lengths{file.bytes().size()};
  options.AddExternalInitializersFromFilesInMemory(names, buffers, lengths);
  return {env, message.data(), message.size(), options};
}

// A line of /proc/self/status, in kB.
long status(const std::string& name) {
  std::ifstream file("/proc/self/status");
  for (std::string word; file >> word;)
    if (word == name + ":") return file >> word ? std::stol(word) : 0;
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: onnxruntime_direct MODEL.onnx\n";
    return 2;
  }
  try {
    const auto file = onecopy::Mapping::open(argv[1]);
    const Ort::Env env(ORT_LOGGING_LEVEL_WARNING, "onecopy");
    const long before = status("RssAnon");
    auto session = open_direct(env, file);
    Ort::AllocatorWithDefaultOptions allocator;
    std::cout << file.bytes().size() / 1000 << " kB mapped, " << session.GetInputCount() << " inputs, first "
              << session.GetInputNameAllocated(0, allocator).get() << "; private memory grew by "
              << status("RssAnon") - before << " kB\n";
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
  return 0;
}
