#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include "bindings.hpp"
#include "buffer.hpp"
#include "onecopy/files/guard.hpp"
#include "onecopy/files/snapshot.hpp"
#include "onecopy/store/artefact.hpp"

namespace onecopy::bindings {
namespace {

// Optional arguments are keyword-only in Python, and become one options struct: in all bindings.
MappingHandle open_mapping(const std::filesystem::path& path, std::uint64_t offset, std::optional<std::uint64_t> length,
                           bool copy, bool private_pages, unsigned threads, std::optional<IdentityTuple> expected) {
  const ReleaseGil release;
  const MappingOptions options{.offset = offset,
                               .length = length,
                               .mode = copy ? Mode::copy : Mode::map,
                               .private_pages = private_pages,
                               .threads = threads};
  auto mapping = std::make_shared<const Mapping>(Mapping::open(path, options));
  mark_if_artefact(mapping->descriptor());
  if (expected) expect_identity(*mapping, to_identity(*expected));
  return MappingHandle(Shared<const Mapping>(std::move(mapping)));
}

std::uintptr_t address_of(const Mapping& mapping) { return reinterpret_cast<std::uintptr_t>(mapping.bytes().data()); }

MappingHandle map_descriptor(int fd, const std::string& name, std::uint64_t offset, std::optional<std::uint64_t> length,
                             bool copy, bool private_pages) {
  const ReleaseGil release;
  const MappingOptions options{
      .offset = offset, .length = length, .mode = copy ? Mode::copy : Mode::map, .private_pages = private_pages};
  return MappingHandle(make_shared<const Mapping>(Mapping::from_descriptor(fd, name, options)));
}

}  // namespace

IdentityTuple to_tuple(const FileIdentity& identity) {
  return {identity.device, identity.inode, identity.size, identity.mtime_ns};
}

FileIdentity to_identity(const IdentityTuple& tuple) {
  return {std::get<0>(tuple), std::get<1>(tuple), std::get<2>(tuple), std::get<3>(tuple)};
}

std::optional<std::vector<ByteRange>> to_ranges(const RangeTuples& tuples) {
  if (!tuples) return std::nullopt;
  std::vector<ByteRange> ranges;
  ranges.reserve(tuples->size());
  for (const auto& [offset, length] : *tuples) ranges.push_back({offset, length});
  return ranges;
}

View MappingHandle::view(ByteRange range) const {
  auto mapping = pin();
  expect_whole(*mapping);
  if (!in_bounds(mapping->bytes().size(), range.offset, range.length))
    throw nb::index_error("the view would extend beyond the mapping");
  const Bytes bytes = mapping->bytes().subspan(range.offset, range.length);
  return {std::move(mapping), bytes, count_.token()};
}

void bind_files(nb::module_& module) {
  nb::class_<View>(module, "View", nb::type_slots(buffer_slots<View>),
                   "A range of a mapping. It supports the buffer protocol and keeps the mapping alive.")
      .def("__len__", [](const View& view) { return view.bytes.size(); });

  nb::class_<MappingHandle>(module, "Mapping", "A file, or part of a file, in memory.")
      .def(
          "view",
          [](const MappingHandle& self, std::uint64_t offset, std::uint64_t length) {
            return memoryview_of(self.view({offset, length}));
          },
          nb::arg("offset"), nb::arg("length"), nb::sig("def view(self, offset: int, length: int) -> memoryview"),
          "Return a view of a range, which is read-only unless the mapping's pages are private.")
      .def("close", &MappingHandle::close)
      .def("changed",
           [](const MappingHandle& self) {
             return without_gil(self.pin(), [](const Mapping& mapping) { return mapping.changed(); });
           })
      .def("fileno", &of_pinned<&Mapping::descriptor, MappingHandle>)
      .def_prop_ro("closed", &MappingHandle::closed)
      .def_prop_ro("views", &MappingHandle::views)
      .def_prop_ro("identity",
                   &of_pinned<[](const Mapping& mapping) { return to_tuple(mapping.identity()); }, MappingHandle>)
      .def_prop_ro("address", &of_pinned<&address_of, MappingHandle>)
      .def_prop_ro("nbytes", &of_pinned<[](const Mapping& mapping) { return mapping.bytes().size(); }, MappingHandle>);

  module.def(
      "take_snapshot",
      [](int fd, const std::string& name, bool drop_source, std::uint64_t lead) {
        const ReleaseGil release;
        return MappingHandle(make_shared<const Mapping>(take_snapshot(fd, name, 0, drop_source, lead)));
      },
      nb::arg("fd"), nb::arg("name"), nb::kw_only(), nb::arg("drop_source") = false, nb::arg("lead") = 0,
      "Copy an open file into sealed memory, after `lead` zero bytes. This moves the descriptor's position. If "
      "`drop_source` is True, drop the copied pages from the page cache.");
  module.def("copy_contents", &copy_contents, nb::arg("source"), nb::arg("target"), nb::arg("size"), nb::arg("name"),
             nb::arg("threads") = 0, nb::arg("lead") = 0, nb::call_guard<ReleaseGil>(),
             "Copy bytes of an open file into another file, where they start at byte `lead`. Raise TimeoutError if a "
             "server does not respond.");
  module.def(
      "content_identity",
      [](int fd, bool ask) {
        const ReleaseGil release;
        const auto found = content_identity(fd, ask);
        return std::tuple(found.device, found.inode, found.size, found.modified, found.changed);
      },
      nb::arg("fd"), nb::kw_only(), nb::arg("ask"),
      "Return (device, inode, size, time of the last write, time of the last change), with times in ns. If `ask` is "
      "True, request them from the file's server.");
  module.def("is_remote", &is_remote, nb::arg("fd"), nb::call_guard<ReleaseGil>(),
             "Return whether an open file is on a network or user-space file system.");
  module.def("is_stacked", &is_stacked, nb::arg("fd"), nb::call_guard<ReleaseGil>(),
             "Return whether an open file's file system may store it in another file system, as overlayfs does.");
  module.def(
      "why_not_identified", &why_not_identified, nb::arg("fd"), nb::call_guard<ReleaseGil>(),
      "Return why an open file may change while its identity stays the same, or \"\" if every write changes it.");
  module.def("guard", &guard);
  module.def("check", &check, nb::call_guard<ReleaseGil>());
  module.def("open_mapping", &open_mapping, nb::arg("path"), nb::kw_only(), nb::arg("offset") = 0,
             nb::arg("length") = nb::none(), nb::arg("copy") = false, nb::arg("private_pages") = false,
             nb::arg("threads") = 0, nb::arg("expected") = nb::none());
  module.def("map_descriptor", &map_descriptor, nb::arg("fd"), nb::arg("name"), nb::kw_only(), nb::arg("offset") = 0,
             nb::arg("length") = nb::none(), nb::arg("copy") = false, nb::arg("private_pages") = false);
}

}  // namespace onecopy::bindings
