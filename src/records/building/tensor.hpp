// A buffer of the future file: its name, and a function that writes its bytes.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "onecopy/base/bytes.hpp"
#include "onecopy/formats/layout.hpp"
#include "onecopy/formats/record_schema.hpp"

namespace onecopy::records {

using ByteSink = std::function<void(Bytes)>;

// `write` passes the bytes on piece by piece; it may be called repeatedly. It refers to the columns.
struct Tensor {
  ArraySpec spec;
  std::function<void(const ByteSink& sink)> write;
};

// The tensors of one node.
class TensorList {
 public:
  TensorList(std::string path, std::vector<Tensor>& tensors) : path_(std::move(path)), tensors_(&tensors) {}

  void add(std::string_view buffer, DType dtype, std::vector<std::uint64_t> shape,
           std::function<void(const ByteSink&)> write) {
    tensors_->push_back({{buffer_name(path_, buffer), dtype, std::move(shape)}, std::move(write)});
  }

  const std::string& path() const noexcept { return path_; }
  std::vector<Tensor>& all() const noexcept { return *tensors_; }

 private:
  std::string path_;
  std::vector<Tensor>* tensors_;
};

}  // namespace onecopy::records
