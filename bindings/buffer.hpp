// Bytes of a Python object.
#pragma once

#include <nanobind/nanobind.h>

#include "onecopy/base/bytes.hpp"

namespace onecopy::bindings {

// A contiguous buffer that cannot move while the GIL is released.
class Buffer {
 public:
  explicit Buffer(nanobind::handle object) {
    if (PyObject_GetBuffer(object.ptr(), &buffer_, PyBUF_C_CONTIGUOUS) != 0) throw nanobind::python_error();
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { PyBuffer_Release(&buffer_); }

  Bytes bytes() const noexcept {
    return {static_cast<const std::byte*>(buffer_.buf), static_cast<std::size_t>(buffer_.len)};
  }

 private:
  Py_buffer buffer_{};
};

}  // namespace onecopy::bindings
