#include <nanobind/ndarray.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include "array_file_handle.hpp"
#include "bindings.hpp"
#include "buffer.hpp"
#include "onecopy/arrays/array_file.hpp"
#include "onecopy/arrays/array_writer.hpp"
#include "onecopy/arrays/verify.hpp"
#include "onecopy/page_cache/warm.hpp"
#include "onecopy/store/artefact.hpp"

namespace onecopy::bindings {
namespace {

nb::tuple to_tuple_of_ints(std::span<const std::uint64_t> shape) {
  const nb::object tuple = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(shape.size())));
  for (std::size_t i = 0; i < shape.size(); ++i)
    PyTuple_SET_ITEM(tuple.ptr(), static_cast<Py_ssize_t>(i), PyLong_FromUnsignedLongLong(shape[i]));
  return nb::borrow<nb::tuple>(tuple);
}

std::string_view type_of(const Entry& entry) {
  return entry.raw_type.empty() ? to_string(entry.dtype) : entry.raw_type;
}

// Null for fillers too: hidden entries are hidden everywhere.
const Entry* find(const Index& index, std::string_view name) {
  const Entry* entry = index.find(name);
  return entry == nullptr || index.is_filler(*entry) ? nullptr : entry;
}

std::optional<nb::tuple> view(const ArrayFileHandle& file, std::string_view name) {
  const auto index = file.index();
  const Entry* entry = find(*index, name);
  if (entry == nullptr) return std::nullopt;
  return nb::make_tuple(memoryview_of(file.mapping().view(entry->range())), type_of(*entry),
                        to_tuple_of_ints(entry->shape), to_tuple_of_ints(entry->strides));
}

std::vector<RangeTuple> ranges_to_verify(const ArrayFileHandle& file, const RangeTuples& ranges) {
  std::vector<RangeTuple> whole;
  const auto pinned = file.pin();
  for (const auto& range : verified_ranges(*pinned, to_ranges(ranges))) whole.emplace_back(range.offset, range.length);
  return whole;
}

// Raises onecopy.errors.ChecksumError with the details of each block.
void translate_checksum_error(const std::exception_ptr& pointer, void* /*unused*/) {
  try {
    rethrow(pointer);
  } catch (const ChecksumError& error) {
    nb::list blocks;
    for (const auto& block : error.blocks()) {
      nb::list names;
      for (const auto& name : block.names) names.append(text_of(name));
      blocks.append(error_class("BadBlock")(block.number, block.range.offset, block.range.length, block.expected,
                                            block.found, nb::tuple(names)));
    }
    const nb::object value = format_error("ChecksumError", error);
    value.attr("blocks") = nb::tuple(blocks);
    PyErr_SetObject(value.type().ptr(), value.ptr());
  }
}

// The file with what Python needs at once: its container, its kind, whether its header is damaged.
std::tuple<std::unique_ptr<ArrayFileHandle>, std::string_view, std::string_view, bool> open_arrays(
    const std::filesystem::path& path, bool copy, bool private_pages, unsigned threads,
    const std::optional<IdentityTuple>& expected, const std::optional<Shared<const FileHandle>>& handle,
    bool accept_index) {
  const auto file =
      open_file(path, {.mode = copy ? Mode::copy : Mode::map, .private_pages = private_pages, .threads = threads},
                expected, handle, accept_index ? ShardIndex::accept : ShardIndex::refuse);
  const Index& index = file->index();
  return {std::make_unique<ArrayFileHandle>(file), index.container(), to_string(index.kind()),
          index.header_check() == HeaderCheck::mismatch};
}

nb::tuple entry_tuple(const Entry& entry) {
  return nb::make_tuple(entry.name, type_of(entry), to_tuple_of_ints(entry.shape), entry.offset, entry.length);
}

// The result of `of` for each entry except the fillers.
template <auto of>
nb::list list_of(const ArrayFileHandle& file) {
  const auto index = file.index();
  nb::list list;
  for (const Entry& entry : index->entries())
    if (!index->is_filler(entry)) list.append(of(entry));
  return list;
}

nb::str name_of(const Entry& entry) { return nb::str(entry.name.data(), entry.name.size()); }

using SpecTuple = std::tuple<std::string, std::string, std::vector<std::uint64_t>>;  // name, dtype, shape

std::unique_ptr<ArrayWriter> make_writer(const std::filesystem::path& path, const std::vector<SpecTuple>& specs,
                                         const std::map<std::string, std::string>& metadata,
                                         std::optional<std::uint64_t> align, bool checksum, bool durable) {
  std::vector<ArraySpec> arrays;
  for (const auto& [name, dtype, shape] : specs) {
    const auto parsed = parse_dtype(dtype);
    if (!parsed) throw nb::value_error(("unknown dtype '" + dtype + "'").c_str());
    arrays.push_back({name, *parsed, shape});
  }
  LayoutOptions options{.metadata = {metadata.begin(), metadata.end()}, .align = align, .checksum = checksum};
  const ReleaseGil release;
  return std::make_unique<ArrayWriter>(path, Layout::plan(std::move(arrays), std::move(options)),
                                       WriteOptions{.durable = durable});
}

// The order in which arrays are written: numbers of the specs, in the order of the file.
std::vector<std::size_t> write_order(const ArrayWriter& writer) {
  std::vector<std::size_t> order;
  for (const auto& placement : writer.layout().placements())
    if (placement.array) order.push_back(*placement.array);
  return order;
}

void write(ArrayWriter& writer, nb::handle object) {
  const Buffer buffer(object);
  const ReleaseGil release;
  writer.write(buffer.bytes());
}

// The memory of a tensor's elements, counted in elements from its first: strides may be negative.
struct Extent {
  std::int64_t lowest = 0;
  std::int64_t highest = -1;
};

Extent extent_of(const nb::ndarray<nb::ro, nb::device::cpu>& tensor) {
  if (tensor.size() == 0) return {};
  Extent extent{0, 0};
  for (std::size_t axis = 0; axis < tensor.ndim(); ++axis) {
    const std::int64_t reach = (static_cast<std::int64_t>(tensor.shape(axis)) - 1) * tensor.stride(axis);
    (reach < 0 ? extent.lowest : extent.highest) += reach;
  }
  return extent;
}

// The memory of a DLPack tensor, kept by it: numpy cannot import bfloat16 and the eight-bit floats itself.
struct TensorMemory {
  nb::ndarray<nb::ro, nb::device::cpu> tensor;

  std::span<std::byte> memory() const noexcept {
    const auto item = static_cast<std::int64_t>(tensor.itemsize());
    const Extent extent = extent_of(tensor);
    const auto* first = static_cast<const std::byte*>(tensor.data()) + extent.lowest * item;
    const auto size = static_cast<std::size_t>((extent.highest - extent.lowest + 1) * item);
    return {const_cast<std::byte*>(first), size};  // NOLINT(cppcoreguidelines-pro-type-const-cast): read-only below
  }
  bool is_read_only() const noexcept { return true; }
};

// (memory, where its first element lies in bytes, DLPack type code, bits, shape, strides in elements)
nb::tuple import_dlpack(nb::ndarray<nb::ro, nb::device::cpu> tensor) {
  std::vector<std::uint64_t> shape;
  std::vector<std::int64_t> strides;
  for (std::size_t axis = 0; axis < tensor.ndim(); ++axis) {
    shape.push_back(tensor.shape(axis));
    strides.push_back(tensor.stride(axis));
  }
  const auto dtype = tensor.dtype();
  if (dtype.lanes != 1) throw nb::value_error("tensors with vector elements are not supported");
  const std::int64_t first = -extent_of(tensor).lowest * static_cast<std::int64_t>(tensor.itemsize());
  return nb::make_tuple(memoryview_of(TensorMemory{std::move(tensor)}), first, unsigned{dtype.code},
                        unsigned{dtype.bits}, shape, strides);
}

}  // namespace

std::shared_ptr<const ArrayFile> open_file(const std::filesystem::path& path, const MappingOptions& options,
                                           const std::optional<IdentityTuple>& expected,
                                           const std::optional<Shared<const FileHandle>>& handle, ShardIndex index) {
  const auto given = handle ? handle->pin() : Pin<const FileHandle>();
  const ReleaseGil release;
  auto file = handle ? ArrayFile::from_descriptor(given->descriptor(), path.string(), options, index)
                     : ArrayFile::open(path, options, index);
  if (!handle) mark_if_artefact(file.mapping()->descriptor());
  if (expected) expect_identity(*file.mapping(), to_identity(*expected));
  return std::make_shared<const ArrayFile>(std::move(file));
}

void bind_arrays(nb::module_& module) {
  nb::register_exception_translator(translate_checksum_error, nullptr);
  nb::class_<ArrayFileHandle>(module, "ArrayFile", "A file of named arrays.")
      .def("view", &view, nb::arg("name"),
           nb::sig("def view(self, name: str) -> tuple[memoryview, str, tuple[int, ...], tuple[int, ...]] | None"),
           "Return (memory, dtype name, shape, strides in elements or () for C order), or None if there is no such "
           "array.")
      .def("names", &list_of<name_of>, nb::sig("def names(self) -> list[str]"), "Return the names in header order.")
      .def("entries", &list_of<entry_tuple>,
           nb::sig("def entries(self) -> list[tuple[str, str, tuple[int, ...], int, int]]"),
           "Return (name, dtype name, shape, offset in the file, bytes) for each array, in header order.")
      .def(
          "entry",
          [](const ArrayFileHandle& self, std::string_view name) -> std::optional<nb::tuple> {
            const auto index = self.index();
            const Entry* entry = find(*index, name);
            if (entry == nullptr) return std::nullopt;
            return entry_tuple(*entry);
          },
          nb::arg("name"), nb::sig("def entry(self, name: str) -> tuple[str, str, tuple[int, ...], int, int] | None"))
      .def("metadata",
           [](const ArrayFileHandle& self) {
             const auto index = self.index();
             const auto& metadata = index->metadata();
             return std::map<std::string, std::string>(metadata.begin(), metadata.end());
           })
      .def("ranges_to_verify", &ranges_to_verify, nb::arg("ranges").none(),
           "Return the given ranges, widened to whole blocks, or the blocks of the whole file for None.")
      .def("verifier",
           [](const ArrayFileHandle& self) {
             const auto file = self.pin();
             return Shared<Inspector>(make_verifier(*file));
           })
      .def("close", &ArrayFileHandle::close)
      .def_prop_ro("mapping", &ArrayFileHandle::mapping, nb::rv_policy::reference_internal)
      .def_prop_ro("container",
                   [](const ArrayFileHandle& self) {
                     const auto index = self.index();
                     return std::string(index->container());
                   })
      .def_prop_ro("kind", [](const ArrayFileHandle& self) {
        const auto index = self.index();
        return to_string(index->kind());
      });
  module.def(
      "open_arrays", &open_arrays, nb::arg("path"), nb::kw_only(), nb::arg("copy") = false,
      nb::arg("private_pages") = false, nb::arg("threads") = 0, nb::arg("expected") = nb::none(),
      nb::arg("handle") = nb::none(), nb::arg("accept_index") = false,
      "Return (file, container, kind, whether the header's checksum is wrong). If `handle` is an open file, `path` is "
      "only its name in messages. If `accept_index` is True, open a sharded model's JSON index as a \"shard index\".");

  nb::class_<ArrayWriter>(module, "ArrayWriter", "Writes a file of named arrays sequentially.")
      .def("write", &write, nb::arg("buffer"), nb::sig("def write(self, buffer: object) -> None"))
      .def("commit", &ArrayWriter::commit, nb::call_guard<ReleaseGil>())
      .def_prop_ro("order", &write_order);
  module.def("make_writer", &make_writer, nb::arg("path"), nb::arg("specs"), nb::kw_only(), nb::arg("metadata"),
             nb::arg("align").none(), nb::arg("checksum"), nb::arg("durable"));

  (void)nb::class_<TensorMemory>(module, "TensorMemory", nb::type_slots(buffer_slots<TensorMemory>),
                                 "The memory of a DLPack tensor. It supports the buffer protocol.");
  module.def("import_dlpack", &import_dlpack, nb::arg("tensor"),
             nb::sig("def import_dlpack(tensor: object) -> tuple[memoryview, int, int, int, list[int], list[int]]"));
}

}  // namespace onecopy::bindings
