#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings.hpp"
#include "onecopy/base/error.hpp"
#include "onecopy/files/available_memory.hpp"
#include "onecopy/files/memory_file_writer.hpp"
#include "onecopy/records/builder.hpp"
#include "onecopy/records/json_import.hpp"
#include "records/arrow.hpp"
#include "records/encode.hpp"

namespace onecopy::bindings {
namespace {

constexpr std::uint64_t check_interval = 1000;  // rows between checks for signals

class RecordBuilder {
 public:
  RecordBuilder(const std::filesystem::path& spool, const std::string& container,
                const std::map<std::string, std::string>& metadata)
      : pairs_(container == "dict"),
        builder_(records::BuilderOptions{
            .spool = spool, .container = container, .metadata = {metadata.begin(), metadata.end()}}) {
    if (container != "list" && container != "dict") throw nb::value_error("container must be 'list' or 'dict'");
  }

  void append(nb::handle row, nb::handle registry) {
    Encoder encoder(registry, numpy_);
    add(encoder, row.ptr());
  }

  std::uint64_t extend(nb::handle rows, nb::handle registry, nb::handle progress) {
    if (nb::hasattr(rows, "_arrow_stream")) return extend_arrow(rows.attr("_arrow_stream")(), progress);
    Encoder encoder(registry, numpy_);
    const std::uint64_t before = length();
    const nb::iterator iterator = nb::iter(rows);
    const auto next_of = [&] { return in_python([&] { return PyIter_Next(iterator.ptr()); }); };
    while (PyObject* next = next_of()) {
      const nb::object row = nb::steal(next);
      add(encoder, row.ptr());
      if ((length() - before) % check_interval != 0) continue;
      check_signals();
      if (!progress.is_none()) in_python([&] { progress(length()); });
    }
    if (PyErr_Occurred() != nullptr) throw nb::python_error();
    return length() - before;
  }

  std::uint64_t extend_json(const MappingHandle& text, const std::vector<std::string>& path, bool lines,
                            nb::handle progress) {
    expect(State::open);
    const auto mapping = text.pin();
    source_ = length() == 0 ? mapping->path() : "";
    const auto tell = [&](std::uint64_t rows, std::uint64_t bytes) {
      const AcquireGil acquire;
      check_signals();
      if (!progress.is_none()) in_python([&] { progress(rows, bytes); });
    };
    state_ = State::broken;  // until everything has succeeded
    const std::uint64_t rows = [&] {
      const ReleaseGil release;
      const records::JsonOptions options{.path = path, .lines = lines, .pairs = pairs_, .progress = tell};
      return read_whole(*mapping, [&](Bytes bytes) { return records::import_json(bytes, builder_->rows(), options); });
    }();
    state_ = State::open;
    return rows;
  }

  std::uint64_t length() { return builder_->rows().length(); }
  std::uint64_t bytes() const { return builder_->bytes(); }

  void save(const std::filesystem::path& path) {
    (void)finish();
    alone(State::finished, [&] { builder_->save(path); });
  }

  // A descriptor, which the caller must close: of a sealed memory file, or of a nameless one in a folder.
  nb::object save_nameless(const std::string& name, const std::filesystem::path& folder) {
    const std::uint64_t size = finish();
    std::optional<WithoutGil<MemoryFileWriter>> file;
    alone(State::finished, [&] {
      file.emplace(name, size, folder);
      builder_->write(**file);
    });
    return in_python([&] { return nb::object(nb::module_::import_("os").attr("dup")((*file)->descriptor())); });
  }

  nb::object save_to_memory(const std::string& name, std::uint64_t share) {
    const auto available = share == 0 ? std::nullopt : available_memory();
    return available && bytes() >= available->bytes / share ? nb::none() : save_nameless(name, {});
  }

 private:
  enum class State : std::uint8_t {
    open,
    busy,  // a row is being encoded, or the rows are written: code that is called and other threads must not enter
    broken,
    finished,
  };

  void add(Encoder& encoder, PyObject* row) {
    expect(State::open);
    const nb::object held = nb::borrow(row);
    state_ = State::busy;
    try {
      const auto number = static_cast<Py_ssize_t>(length());
      in_python([&] { encoder.check(row, number, pairs_); });
    } catch (...) {
      state_ = State::open;
      throw;
    }
    try {
      in_python([&] { encoder.add(builder_->rows(), row); });
    } catch (...) {
      state_ = State::broken;
      throw;
    }
    state_ = State::open;
  }

  // Calls `work` without the GIL; no other thread can use the builder meanwhile.
  template <class Work>
  void alone(State after_failure, const Work& work) {
    if (state_ != State::finished) expect(State::open);
    state_ = State::busy;
    try {
      const ReleaseGil release;
      work();
    } catch (...) {
      state_ = after_failure;
      throw;
    }
    state_ = State::finished;
  }

  std::uint64_t finish() {
    std::uint64_t size = 0;
    try {
      alone(state_ == State::finished ? State::finished : State::broken, [&] { size = builder_->finish(); });
    } catch (const FormatError& error) {
      throw source_.empty() ? error : error.with_path(source_);
    }
    return size;
  }

  // Rows in Arrow's memory need no conversion to Python objects (onecopy.records.from_arrow).
  std::uint64_t extend_arrow(nb::handle stream, nb::handle progress) {
    expect(State::open);
    state_ = State::broken;  // until everything is appended
    const std::uint64_t added = append_arrow_stream(builder_->rows(), stream, [&] {
      if (!progress.is_none()) in_python([&] { progress(length()); });
    });
    state_ = State::open;
    return added;
  }

  void expect(State wanted) const {
    if (state_ == wanted) return;
    if (state_ == State::broken)
      throw nb::value_error("an earlier row failed after part of it had been added: create a new builder");
    if (state_ == State::finished) throw nb::value_error("cannot add rows after the rows were saved");
    throw nb::value_error("another call is using the builder");
  }

  bool pairs_;
  WithoutGil<records::Builder> builder_;
  NumpyTypes numpy_;
  State state_ = State::open;
  std::string source_;  // path of the file that all rows come from
};

}  // namespace

void bind_record_builder(const nb::module_& module) {
  nb::class_<RecordBuilder>(module, "RecordBuilder", "Streams rows into a records file.")
      .def(nb::init<const std::filesystem::path&, const std::string&, const std::map<std::string, std::string>&>(),
           nb::arg("spool"), nb::arg("container"), nb::arg("metadata"))
      .def("append", &RecordBuilder::append, nb::arg("row").none(), nb::arg("registry"),
           nb::sig("def append(self, row: object, registry: object) -> None"),
           "Append a row. `registry` is called with each value that is not plain, and returns (name, plain value) or "
           "None.")
      .def("extend", &RecordBuilder::extend, nb::arg("rows"), nb::arg("registry"), nb::kw_only(),
           nb::arg("progress") = nb::none(),
           nb::sig("def extend(self, rows: object, registry: object, *, progress: object | None = None) -> int"),
           "Append rows and return their number. `progress` is called after every thousand rows with the total number "
           "of rows.")
      .def("extend_json", &RecordBuilder::extend_json, nb::arg("text"), nb::kw_only(), nb::arg("path"),
           nb::arg("lines"), nb::arg("progress").none(),
           nb::sig("def extend_json(self, text: Mapping, *, path: list[str], lines: bool, "
                   "progress: object | None) -> int"),
           "Append the rows in a JSON text. `progress` is called with the numbers of rows and bytes, about 20 times "
           "per second.")
      .def("save", &RecordBuilder::save, nb::arg("path"))
      .def("save_to_memory", &RecordBuilder::save_to_memory, nb::arg("name"), nb::arg("share") = 0,
           nb::sig("def save_to_memory(self, name: str, share: int = 0) -> int | None"),
           "Return a descriptor that the caller must close, or None if the rows need at least 1/`share` of the "
           "available memory.")
      .def(
          "save_nameless",
          [](RecordBuilder& self, const std::filesystem::path& folder) {
            return self.save_nameless(folder.string(), folder);
          },
          nb::arg("folder"), nb::sig("def save_nameless(self, folder: str) -> int"),
          "Save to an unnamed file in a folder. Return its descriptor, which the caller must close.")
      .def_prop_ro("length", &RecordBuilder::length)
      .def_prop_ro("bytes", &RecordBuilder::bytes, "The number of bytes moved from memory to the spool file.");
}

}  // namespace onecopy::bindings
