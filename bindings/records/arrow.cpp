#include "records/arrow.hpp"

#include <numeric>
#include <optional>
#include <vector>

#include "onecopy/base/error.hpp"
#include "onecopy/records/arrow.hpp"
#include "onecopy/records/budget.hpp"
#include "onecopy/records/gathered.hpp"

namespace onecopy::bindings {
namespace {

using records::Node;

// The owner of exported arrays. Holds no Python object: arrays are released on any thread, and without the GIL.
struct Export {
  WithoutGil<records::RecordFile> file;
  ViewCount::Token token;
  std::optional<records::Gathered> copied;  // if the rows are not laid out as Arrow requires
  const Node* node;
  std::uint64_t start = 0;
  std::uint64_t length;

  Export(const records::RecordFile& of, ViewCount::Token view, const Node& rows, std::uint64_t count)
      : file(of), token(std::move(view)), node(&rows), length(count) {}
};

// The rows in the form that Arrow requires: in place, or copied.
void lay_out(Export& made, const Rows& rows) {
  const Node& node = *made.node;
  if (!rows.indices() && rows.step() == 1 && is_aligned(node)) {
    made.start = static_cast<std::uint64_t>(rows.start());
    return;
  }
  const std::uint64_t file_bytes = made.file->arrays().mapping()->bytes().size();
  if (!rows.indices()) records::Budget(file_bytes).charge(records::cost_of(node), rows.size(), node);
  std::vector<std::uint64_t> places(rows.size());
  for (std::uint64_t i = 0; i < places.size(); ++i) places[i] = rows.place(i);
  made.node = &made.copied.emplace(node, places, file_bytes).node();
}

// Exports a copy of the rows, because user code may change the object while the GIL is released.
std::shared_ptr<const Export> exported(const Rows& given) {
  const Rows rows = given;  // NOLINT(performance-unnecessary-copy-initialization)
  const auto source = rows.source();
  const auto decoder = rows.decoder();
  const Node& node = decoder->node();
  auto made = std::make_shared<Export>(*source->file, source->views.token(), node, rows.size());
  const bool checked = source->checked.contains(&node);
  {
    const ReleaseGil release;
    if (!checked) records::check(node);
    lay_out(*made, rows);
    expect_whole(*source->file->arrays().mapping());
  }
  source->checked.insert(&node);
  return made;
}

// A capsule owns its struct, and releases it unless a consumer has moved it out.
template <class Struct>
void destroy(PyObject* capsule) noexcept {
  auto* held = static_cast<Struct*>(PyCapsule_GetPointer(capsule, PyCapsule_GetName(capsule)));
  if (held->release != nullptr) held->release(held);
  delete held;  // NOLINT(cppcoreguidelines-owning-memory): made by capsule_of
}

template <class Struct, class Fill>
nb::object capsule_of(const char* name, const Fill& fill) {
  auto held = std::make_unique<Struct>();
  fill(*held);
  PyObject* capsule = PyCapsule_New(held.get(), name, destroy<Struct>);
  if (capsule == nullptr) {
    held->release(held.get());
    throw nb::python_error();
  }
  (void)held.release();
  return nb::steal(capsule);
}

nb::object schema_of(const Node& node) {
  return capsule_of<ArrowSchema>("arrow_schema", [&](ArrowSchema& out) { export_schema(node, out); });
}

}  // namespace

nb::object arrow_schema(const Rows& rows) {
  const auto decoder = rows.decoder();
  return schema_of(decoder->node());
}

nb::tuple arrow_array(const Rows& rows) {
  const auto owner = exported(rows);
  const nb::object array = capsule_of<ArrowArray>(
      "arrow_array", [&](ArrowArray& out) { export_array(*owner->node, owner->start, owner->length, owner, out); });
  return nb::make_tuple(schema_of(*owner->node), array);
}

nb::object arrow_stream(const Rows& rows) {
  const auto owner = exported(rows);
  return capsule_of<ArrowArrayStream>("arrow_array_stream", [&](ArrowArrayStream& out) {
    export_stream(*owner->node, owner->start, owner->length, owner, out);
  });
}

std::uint64_t append_arrow_stream(records::Column& rows, nb::handle capsule, const std::function<void()>& each) {
  auto* stream = static_cast<ArrowArrayStream*>(PyCapsule_GetPointer(capsule.ptr(), "arrow_array_stream"));
  if (stream == nullptr) throw nb::python_error();
  if (stream->release == nullptr) throw nb::value_error("the Arrow stream has already been read");
  const ReleaseGil release;
  return records::import_stream(*stream, rows, [&each] {
    const AcquireGil acquire;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    each();
  });
}

}  // namespace onecopy::bindings
