// Bytes of Python objects, and Python objects that have bytes.
#pragma once

#include <nanobind/nanobind.h>

#include <iterator>
#include <span>
#include <utility>

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

// The slots of a type whose memory() Python accesses through the buffer protocol; is_read_only() as it is then.
template <class T>
int get_buffer(PyObject* self, Py_buffer* buffer, int flags) noexcept {
  static std::byte nothing{};  // an empty span may have no address, and Python's buffers must have one
  const T& owner = *nanobind::inst_ptr<T>(self);
  const std::span<std::byte> memory = owner.memory();
  return PyBuffer_FillInfo(buffer, self, memory.empty() ? &nothing : memory.data(), std::ssize(memory),
                           owner.is_read_only() ? 1 : 0, flags);
}

template <class T>
inline PyType_Slot buffer_slots[] = {// NOLINT: as CPython wants it
                                     {Py_bf_getbuffer, reinterpret_cast<void*>(get_buffer<T>)},
                                     {0, nullptr}};

// A memoryview that keeps `owner`, which is of such a type.
template <class T>
nanobind::object memoryview_of(T owner) {
  const nanobind::object object = nanobind::cast(std::move(owner));
  return nanobind::steal(PyMemoryView_FromObject(object.ptr()));
}

}  // namespace onecopy::bindings
