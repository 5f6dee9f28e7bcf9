// NumPy arrays that own a copy-on-write mapping like other memory: their allocator (NEP 49) unmaps it.
#define NPY_NO_DEPRECATED_API NPY_1_22_API_VERSION
#define NPY_TARGET_VERSION NPY_1_22_API_VERSION
#include <numpy/arrayobject.h>

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "bindings.hpp"
#include "onecopy/base/error.hpp"

namespace onecopy::bindings {
namespace {

// The allocator of one array. Its data is mapped memory until numpy frees or resizes it; what numpy allocates for this
// array afterwards is on the heap.
class MappedAllocator {
 public:
  MappedAllocator(int fd, std::uint64_t offset, std::size_t size, bool random) : size_(size) {
    const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
    lead_ = static_cast<std::size_t>(offset % page);
    void* at =
        ::mmap(nullptr, lead_ + size, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, static_cast<off_t>(offset - lead_));
    if (at == MAP_FAILED) throw OsError("map", "a snapshot", errno);
    data_ = static_cast<std::byte*>(at) + lead_;
    if (random) (void)::madvise(at, lead_ + size, MADV_RANDOM);  // a hint: without it, faults read more
  }
  MappedAllocator(const MappedAllocator&) = delete;
  MappedAllocator& operator=(const MappedAllocator&) = delete;
  ~MappedAllocator() { unmap(); }

  const void* data() const noexcept { return data_; }

  // A capsule with numpy's description of this allocator; numpy keeps it as long as the array has the memory.
  static nb::object capsule(std::unique_ptr<MappedAllocator> allocator) {
    PyDataMem_Handler& handler = allocator->handler_;
    std::strncpy(handler.name, "onecopy_mapping", sizeof handler.name - 1);
    handler.version = 1;
    handler.allocator = {allocator.get(), take, take_zeroed, resize, release};
    PyObject* made = PyCapsule_New(&handler, "mem_handler", [](PyObject* self) {
      const auto* pointer = static_cast<const PyDataMem_Handler*>(PyCapsule_GetPointer(self, "mem_handler"));
      delete static_cast<MappedAllocator*>(pointer->allocator.ctx);
    });
    if (made == nullptr) throw nb::python_error();
    (void)allocator.release();  // NOLINT(bugprone-unused-return-value): the capsule has it
    return nb::steal(made);
  }

 private:
  static MappedAllocator& of(void* context) noexcept { return *static_cast<MappedAllocator*>(context); }

  // The mapping, for the one request of its size; else null.
  void* give(std::size_t size) noexcept {
    if (given_ || size_ != size) return nullptr;
    given_ = true;
    return data_;
  }

  static void* take(void* context, std::size_t size) noexcept {
    void* mapped = of(context).give(size);
    return mapped != nullptr ? mapped : std::malloc(size);  // NOLINT: numpy's own interface is malloc's
  }

  // numpy requires zeroed memory for text.
  static void* take_zeroed(void* context, std::size_t count, std::size_t size) noexcept {
    void* mapped = of(context).give(count * size);
    return mapped != nullptr ? mapped : std::calloc(count, size);  // NOLINT
  }

  static void* resize(void* context, void* data, std::size_t size) noexcept {
    MappedAllocator& self = of(context);
    if (data != self.data_) return std::realloc(data, size);  // NOLINT
    void* heap = std::malloc(size);                           // NOLINT
    if (heap == nullptr) return nullptr;
    std::memcpy(heap, data, std::min(size, self.size_));
    self.unmap();
    return heap;
  }

  static void release(void* context, void* data, std::size_t /*size*/) noexcept {
    MappedAllocator& self = of(context);
    if (data != self.data_) return std::free(data);  // NOLINT
    self.unmap();
  }

  void unmap() noexcept {
    if (data_ != nullptr) ::munmap(data_ - lead_, lead_ + size_);
    data_ = nullptr;
  }

  std::size_t size_;
  std::size_t lead_ = 0;  // bytes from the beginning of the page to the data
  std::byte* data_ = nullptr;
  bool given_ = false;
  PyDataMem_Handler handler_{};
};

// The allocator with which numpy makes arrays in this thread, for the life of this object.
class ScopedHandler {
 public:
  explicit ScopedHandler(const nb::object& capsule) : before_(nb::steal(PyDataMem_SetHandler(capsule.ptr()))) {
    if (!before_.is_valid()) throw nb::python_error();
  }
  ScopedHandler(const ScopedHandler&) = delete;
  ScopedHandler& operator=(const ScopedHandler&) = delete;
  ~ScopedHandler() { Py_XDECREF(PyDataMem_SetHandler(before_.ptr())); }

 private:
  nb::object before_;
};

nb::object owned_array(int fd, std::uint64_t offset, const std::vector<Py_ssize_t>& shape, const nb::object& dtype,
                       bool random) {
  if (PyArray_API == nullptr && _import_array() < 0) throw nb::python_error();
  if (PyArray_DescrCheck(dtype.ptr()) == 0) throw nb::type_error("dtype must be a numpy.dtype");
  auto* descr = reinterpret_cast<PyArray_Descr*>(dtype.ptr());  // NOLINT: CPython's own inheritance
  if (PyDataType_REFCHK(descr)) throw nb::value_error("arrays of objects cannot be mapped");
  auto size = static_cast<std::uint64_t>(PyDataType_ELSIZE(descr));
  for (const Py_ssize_t extent : shape)
    if (extent < 0 || __builtin_mul_overflow(size, static_cast<std::uint64_t>(extent), &size))
      throw nb::value_error("the array is larger than the address space");
  if (size == 0 || size > static_cast<std::uint64_t>(PTRDIFF_MAX))
    throw nb::value_error("the array must have at least one byte");
  auto allocator = [&] {
    const ReleaseGil release;
    return std::make_unique<MappedAllocator>(fd, offset, static_cast<std::size_t>(size), random);
  }();
  const void* mapped = allocator->data();
  const nb::object capsule = MappedAllocator::capsule(std::move(allocator));
  const ScopedHandler handler(capsule);
  std::vector<npy_intp> extents(shape.begin(), shape.end());
  Py_INCREF(descr);  // numpy takes this reference
  PyObject* array = PyArray_NewFromDescr(&PyArray_Type, descr, static_cast<int>(extents.size()), extents.data(),
                                         nullptr, nullptr, 0, nullptr);
  if (array == nullptr) throw nb::python_error();
  nb::object result = nb::steal(array);
  if (PyArray_DATA(reinterpret_cast<PyArrayObject*>(array)) != mapped)  // NOLINT: CPython's own inheritance
    throw nb::value_error("NumPy did not use the mapped memory");
  return result;
}

}  // namespace

void bind_owned_arrays(nb::module_& module) {
  module.def(
      "owned_array", &owned_array, nb::arg("fd"), nb::arg("offset"), nb::arg("shape"), nb::arg("dtype"),
      nb::arg("random") = false,
      nb::sig("def owned_array(fd: int, offset: int, shape: Sequence[int], dtype: numpy.dtype[Any], random: bool = "
              "False) -> numpy.ndarray[Any, Any]"),
      "Return a NumPy array that owns a copy-on-write mapping of part of a file. You may close the descriptor "
      "afterwards. If `random` is True, a fault reads only one page, whatever the device's read-ahead.");
}

}  // namespace onecopy::bindings
