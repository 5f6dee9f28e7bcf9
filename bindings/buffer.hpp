// Bytes of a Python object.
#pragma once

#include <nanobind/nanobind.h>

#include <span>

#include "onecopy/base/bytes.hpp"

namespace onecopy::bindings {

// A contiguous buffer that cannot move while the GIL is released.
class Buffer {
 public:
  explicit Buffer(nanobind::handle object, int flags = PyBUF_C_CONTIGUOUS) {
    if (PyObject_GetBuffer(object.ptr(), &buffer_, flags) != 0) throw nanobind::python_error();
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { PyBuffer_Release(&buffer_); }

  Bytes bytes() const noexcept { return as<const std::byte>(); }
  template <class T>
  std::span<T> as() const noexcept {
    return {static_cast<T*>(buffer_.buf), static_cast<std::size_t>(buffer_.len) / sizeof(T)};
  }
  const Py_buffer& info() const noexcept { return buffer_; }

 private:
  Py_buffer buffer_{};
};

}  // namespace onecopy::bindings
