#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <map>

#include "bindings.hpp"
#include "buffer.hpp"
#include "onecopy/page_cache/warm.hpp"
#include "onecopy/scratch/publish.hpp"
#include "onecopy/scratch/scratch_file.hpp"

namespace onecopy::bindings {
namespace {

// A scratch file that can be closed while views of it live on.
class ScratchHandle {
 public:
  explicit ScratchHandle(Shared<ScratchFile> file) : file_(std::move(file)) {}

  Pin<ScratchFile> pin() const { return file_.pin("the scratch file is closed"); }
  void close() noexcept { file_.close(); }
  bool closed() const noexcept { return file_.closed(); }

 private:
  Shared<ScratchFile> file_;
};

// Its bytes through the buffer protocol, writable until the file is sealed; keeps the file.
struct ScratchView {
  Pin<ScratchFile> file;

  std::span<std::byte> memory() const noexcept { return file->bytes(); }
  bool is_read_only() const noexcept { return file->sealed(); }
};

nb::object view(const ScratchHandle& self) { return memoryview_of(ScratchView{self.pin()}); }

std::unique_ptr<ScratchHandle> create_scratch(std::uint64_t size, const std::filesystem::path& folder, std::string name,
                                              bool reserve, bool anywhere, std::uint64_t head,
                                              std::optional<std::uint64_t> max_resident) {
  const ScratchOptions options{.folder = folder,
                               .name = std::move(name),
                               .reserve = reserve,
                               .anywhere = anywhere,
                               .head = head,
                               .max_resident = max_resident};
  const ReleaseGil release;
  return std::make_unique<ScratchHandle>(make_shared<ScratchFile>(ScratchFile::create(size, options)));
}

void write(const ScratchHandle& self, std::uint64_t offset, nb::handle object) {
  const Buffer buffer(object);
  without_gil(self.pin(), [&](ScratchFile& file) { file.copy_in(offset, buffer.bytes()); });
}

void write_direct(const ScratchHandle& self, std::uint64_t offset, nb::handle object) {
  const Buffer buffer(object);
  without_gil(self.pin(), [&](ScratchFile& file) { file.write_direct(offset, buffer.bytes()); });
}

void write_rows(const ScratchHandle& self, nb::handle object, std::uint64_t offset, std::uint64_t stride,
                std::uint64_t count) {
  const Buffer buffer(object);
  without_gil(self.pin(), [&](ScratchFile& file) { file.copy_in(offset, stride, count, buffer.bytes()); });
}

template <auto function>
auto alone(const ScratchHandle& self) {
  return without_gil(self.pin(), [](ScratchFile& file) { return function(file); });
}

template <auto function>
auto with_ranges(const ScratchHandle& self, const RangeTuples& tuples) {
  return without_gil(self.pin(), [&](ScratchFile& file) { return function(file, to_ranges(tuples)); });
}

ArraySpec spec_of(const std::string& name, const std::string& dtype, const std::vector<std::uint64_t>& shape) {
  const auto parsed = parse_dtype(dtype);
  if (!parsed) throw nb::value_error(("unknown dtype '" + dtype + "'").c_str());
  return {name, *parsed, shape};
}

void publish_scratch(const ScratchHandle& self, const std::filesystem::path& path, const std::string& name,
                     const std::string& dtype, const std::vector<std::uint64_t>& shape,
                     const std::map<std::string, std::string>& metadata, bool checksum, bool durable) {
  const auto file = self.pin();
  LayoutOptions options{.metadata = {metadata.begin(), metadata.end()}, .checksum = checksum};
  const ArraySpec spec = spec_of(name, dtype, shape);
  const ReleaseGil release;
  publish(*file, path, spec, std::move(options), {.durable = durable});
}

void bind_scratch_reports(const nb::module_& module) {
  nb::class_<ScratchMemory>(module, "ScratchMemory",
                            "A scratch file's memory use, in bytes. Numbers that the kernel does not report are None.")
      .def("__repr__", &repr_of, nb::sig("def __repr__(self) -> str"))
      .def_ro("bytes", &ScratchMemory::bytes)
      .def_ro("resident", &ScratchMemory::resident)
      .def_ro("dirty", &ScratchMemory::dirty)
      .def_ro("clean", &ScratchMemory::clean)
      .def_ro("mapped", &ScratchMemory::mapped)
      .def_ro("shared", &ScratchMemory::shared)
      .def_ro("cap", &ScratchMemory::cap)
      .def_ro("over", &ScratchMemory::over)
      .def_prop_ro("source", [](const ScratchMemory& self) { return to_string(self.source); });
  nb::class_<ReleaseReport>(module, "ReleaseReport",
                            "The result of `release`. Numbers that the kernel does not report are None.")
      .def("__repr__", &repr_of, nb::sig("def __repr__(self) -> str"))
      .def(
          "__init__",
          [](ReleaseReport* self, std::string reason) {
            new (self) ReleaseReport();
            self->reason = std::move(reason);
          },
          nb::arg("reason"), "Create a report for 0 bytes.")
      .def_ro("bytes", &ReleaseReport::bytes, "Bytes that were requested, in whole pages.")
      .def_ro("resident_before", &ReleaseReport::resident_before, "Bytes that were in memory before the call.")
      .def_ro("resident_after", &ReleaseReport::resident_after, "Bytes that stayed in memory.")
      .def_ro("seconds", &ReleaseReport::seconds)
      .def_ro("reason", &ReleaseReport::reason, "Where the bytes are and why some stayed, as a sentence.");
}

}  // namespace

void bind_scratch(nb::module_& module) {
  bind_scratch_reports(module);
  (void)nb::class_<ScratchView>(
      module, "ScratchView", nb::type_slots(buffer_slots<ScratchView>),
      "A view of the bytes of a scratch file. It supports the buffer protocol and keeps the file alive.");
  nb::class_<ScratchHandle>(module, "ScratchFile", "Writable memory in an unnamed file.")
      .def("view", &view, nb::sig("def view(self) -> memoryview"),
           "Return a view of all bytes, which is writable until the file is sealed.")
      .def("write", &write, nb::arg("offset"), nb::arg("buffer"),
           nb::sig("def write(self, offset: int, buffer: object) -> None"))
      .def("write_rows", &write_rows, nb::arg("buffer"), nb::kw_only(), nb::arg("offset"), nb::arg("stride"),
           nb::arg("count"),
           nb::sig("def write_rows(self, buffer: object, *, offset: int, stride: int, count: int) -> None"))
      .def("write_direct", &write_direct, nb::arg("offset"), nb::arg("buffer"),
           nb::sig("def write_direct(self, offset: int, buffer: object) -> None"),
           "Write bytes without keeping them in memory.")
      .def("release", &with_ranges<[](ScratchFile& file, Ranges ranges) { return file.release(ranges); }>,
           nb::arg("ranges"))
      .def("prefetch", &with_ranges<[](ScratchFile& file, Ranges ranges) { return file.prefetch(ranges); }>,
           nb::arg("ranges"))
      .def("flush", &alone<[](ScratchFile& file) { file.flush(); }>)
      .def("memory", &alone<[](ScratchFile& file) { return file.memory(); }>)
      .def("seal", &alone<[](ScratchFile& file) { return MappingHandle(make_shared<const Mapping>(file.seal())); }>)
      .def("publish", &publish_scratch, nb::arg("path"), nb::kw_only(), nb::arg("name"), nb::arg("dtype"),
           nb::arg("shape"), nb::arg("metadata"), nb::arg("checksum"), nb::arg("durable"))
      .def("close", &ScratchHandle::close)
      .def_prop_ro("closed", &ScratchHandle::closed)
      .def_prop_ro("sealed", &of_pinned<&ScratchFile::sealed, ScratchHandle>)
      .def_prop_ro("max_resident", &of_pinned<&ScratchFile::max_resident, ScratchHandle>)
      .def_prop_ro("head", &of_pinned<&ScratchFile::head, ScratchHandle>)
      .def_prop_ro("folder", &of_pinned<[](const ScratchFile& file) { return text_of(file.folder()); }, ScratchHandle>,
                   nb::sig("def folder(self) -> str"))
      .def_prop_ro("reason", &of_pinned<[](const ScratchFile& file) { return text_of(file.reason()); }, ScratchHandle>,
                   nb::sig("def reason(self) -> str"));
  module.def("create_scratch", &create_scratch, nb::arg("size"), nb::kw_only(), nb::arg("folder"), nb::arg("name"),
             nb::arg("reserve"), nb::arg("anywhere"), nb::arg("head"), nb::arg("max_resident").none());
  module.def(
      "scratch_head",
      [](const std::string& dtype, const std::vector<std::uint64_t>& shape) {
        return head_for(spec_of("data", dtype, shape));
      },
      nb::arg("dtype"), nb::arg("shape"), "Return the header size, in bytes, of a file that contains a single array.");
}

}  // namespace onecopy::bindings
