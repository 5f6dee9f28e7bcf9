#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include "bindings.hpp"
#include "onecopy/files/file_handle.hpp"
#include "onecopy/files/users.hpp"
#include "onecopy/store/builder_process.hpp"
#include "onecopy/store/default_folder.hpp"
#include "onecopy/store/prune.hpp"
#include "onecopy/store/store.hpp"

namespace onecopy::bindings {
namespace {

using Release = nb::call_guard<ReleaseGil>;

// Keys are text in Python and bytes in the store: encoded like paths, so that any text is preserved.
std::string bytes_of(const nb::str& text) {
  const auto encoded = nb::steal<nb::bytes>(PyUnicode_EncodeFSDefault(text.ptr()));
  if (!encoded.is_valid()) throw nb::python_error();
  return {encoded.c_str(), encoded.size()};
}

// With the GIL, so that a Ctrl-C becomes an exception that ends the wait.
void call_on_wait(const nb::object& on_wait, const Waiting& waiting) {
  const AcquireGil acquire;
  check_signals();
  if (!on_wait.is_none())
    in_python([&] { on_wait(waiting.process, waiting.since_ns, waiting.bytes, waiting.seconds); });
}

Artefact get_or_build(const Store& self, const nb::str& key, const nb::object& build,
                      const std::filesystem::path& source, const nb::object& on_wait, std::optional<double> timeout,
                      bool durable) {
  BuildOptions options{
      .source = source, .on_wait = [&](const Waiting& waiting) { call_on_wait(on_wait, waiting); }, .durable = durable};
  if (timeout) options.patience = std::chrono::milliseconds(static_cast<std::int64_t>(*timeout * 1000));
  const auto call = [&](const std::filesystem::path& path) {
    const AcquireGil acquire;
    in_python([&] { build(path); });
  };
  const std::string text = bytes_of(key);
  const ReleaseGil release;
  return self.get_or_build(text, call, options);
}

PruneReport prune_store(const Store& self, std::optional<double> max_age, std::optional<std::uint64_t> max_bytes,
                        bool missing_source, const std::vector<nb::str>& keys, bool everything, bool dry_run) {
  PruneOptions options{
      .max_bytes = max_bytes, .missing_source = missing_source, .everything = everything, .dry_run = dry_run};
  if (max_age) options.max_age = std::chrono::nanoseconds(static_cast<std::int64_t>(*max_age * 1e9));
  for (const auto& key : keys) options.keys.push_back(bytes_of(key));
  const ReleaseGil release;
  return prune(self, options);
}

constexpr double seconds(std::int64_t ns) { return static_cast<double>(ns) / 1e9; }

}  // namespace

void bind_store(nb::module_& module) {
  using SharedHandle = Shared<const FileHandle>;
  nb::class_<SharedHandle>(module, "FileHandle", "A file descriptor that is closed automatically.")
      .def(
          "__init__", [](SharedHandle* self, int fd) { new (self) SharedHandle(make_shared<const FileHandle>(fd)); },
          nb::arg("fd"), "Take ownership of the descriptor.")
      .def("fileno", [](const SharedHandle& self) {
        const auto file = self.pin();
        return file->descriptor();
      });
  nb::class_<Artefact>(module, "Artefact", "A file in a store.")
      .def_prop_ro(
          "key", [](const Artefact& self) { return text_of(self.key); }, nb::sig("def key(self) -> str"))
      .def_prop_ro(
          "path", [](const Artefact& self) { return text_of(self.path.native()); }, nb::sig("def path(self) -> str"))
      .def_ro("bytes", &Artefact::bytes)
      .def_prop_ro("created", [](const Artefact& self) { return seconds(self.created_ns); })
      .def_prop_ro("last_used", [](const Artefact& self) { return seconds(self.last_used_ns); })
      .def_prop_ro(
          "source", [](const Artefact& self) { return text_of(self.source.native()); },
          nb::sig("def source(self) -> str"))
      .def_ro("source_present", &Artefact::source_present)
      .def_prop_ro("state", [](const Artefact& self) { return to_string(self.state); })
      .def_ro("built", &Artefact::built)
      .def_ro("waited", &Artefact::waited)
      .def_ro("seconds", &Artefact::seconds)
      .def_prop_ro(
          "reason", [](const Artefact& self) { return text_of(self.reason); }, nb::sig("def reason(self) -> str"))
      .def_prop_ro(
          "handle",
          [](const Artefact& self) {
            return self.file ? std::optional(Shared<const FileHandle>(self.file)) : std::nullopt;
          },
          nb::sig("def handle(self) -> FileHandle | None"));
  nb::class_<PruneReport>(module, "PruneReport", "The result of `prune`.")
      .def_ro("removed", &PruneReport::removed)
      .def_ro("kept", &PruneReport::kept)
      .def_ro("bytes", &PruneReport::bytes);
  nb::class_<Store>(module, "Store", "A folder of artefacts.")
      .def_prop_ro(
          "folder", [](const Store& self) { return text_of(self.folder().native()); },
          nb::sig("def folder(self) -> str"))
      .def(
          "path", [](const Store& self, const nb::str& key) { return text_of(self.path(bytes_of(key)).native()); },
          nb::arg("key"), nb::sig("def path(self, key: str) -> str"))
      .def(
          "find",
          [](const Store& self, const nb::str& key) {
            const auto text = bytes_of(key);
            const ReleaseGil release;  // it may flush the artefact
            return self.find(text);
          },
          nb::arg("key"))
      .def("get_or_build", &get_or_build, nb::arg("key"), nb::arg("build"), nb::kw_only(), nb::arg("source"),
           nb::arg("on_wait").none(), nb::arg("timeout").none(), nb::arg("durable"))
      .def("list", &Store::list, Release())
      .def("prune", &prune_store, nb::kw_only(), nb::arg("max_age").none(), nb::arg("max_bytes").none(),
           nb::arg("missing_source"), nb::arg("keys"), nb::arg("everything"), nb::arg("dry_run"));
  module.def(
      "open_store",
      [](const std::filesystem::path& folder, bool shared, std::optional<std::uint64_t> owner) {
        return Store::open(folder, {.owner = owner, .shared = shared});
      },
      nb::arg("folder"), nb::kw_only(), nb::arg("shared") = false, nb::arg("owner").none() = nb::none(), Release());
  module.def(
      "default_folder",
      [](bool memory) {
        const auto environment = Environment::now();
        const auto folder = [&] {
          const ReleaseGil release;
          return default_folder(memory ? Place::memory : Place::disk, environment);
        }();
        return nb::make_tuple(text_of(folder.path.native()), text_of(folder.reason), text_of(folder.obstacle));
      },
      nb::kw_only(), nb::arg("memory"), nb::sig("def default_folder(*, memory: bool) -> tuple[str, str, str]"),
      "Return (path, why it was chosen, why the usual folder was not chosen).");
  module.def(
      "is_in_memory", [](const std::filesystem::path& folder) { return place_of(folder) == Place::memory; },
      nb::arg("folder"), Release());
  module.def("known_user", &known_user, nb::arg("id"), Release(),
             "Return the user that an ID refers to, or None if it is the overflow ID and may refer to any user.");
  module.def(
      "owner_of", [](int fd) { return owner_of(fd); }, nb::arg("fd"), Release(),
      "Return the owner of an open file, or None if that user has no ID in this user namespace.");
  module.def(
      "owner_at", [](const std::filesystem::path& path) { return owner_of(path); }, nb::arg("path"), Release(),
      "Return the owner of the file at a path, or None if that user has no ID in this user namespace.");
  module.def("report_progress", &report_progress, nb::arg("bytes"), Release());
  module.def("end_with_parent", &end_with_parent, nb::arg("parent"),
             "Make the kernel kill this forked child when `parent` ends. Return False if it has already ended.");
}

}  // namespace onecopy::bindings
