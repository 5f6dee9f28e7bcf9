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
  records::RecordFile file;
  ViewCount::Token token;
  std::optional<records::Gathered> copied;  // if the rows are not laid out as Arrow requires
  const Node* node;
  std::uint64_t start;
  std::uint64_t length;
};

std::shared_ptr<const Export> exported(const Rows& rows) {
  const auto source = rows.share();  // another thread may close the rows meanwhile
  const Node& node = rows.decoder().node();
  auto made = std::make_shared<Export>(Export{source->file, source->views.token(), {}, &node, 0, rows.size()});
  const bool in_place = !rows.indices() && rows.step() == 1 && is_aligned(node);
  const ReleaseGil release;
  source->check_once(node);
  if (in_place) {
    made->start = static_cast<std::uint64_t>(rows.start());
  } else {
    const std::uint64_t file_bytes = source->file.arrays().mapping()->bytes().size();
    if (!rows.indices()) records::Budget(file_bytes).charge(records::cost_of(node), rows.size(), node);
    std::vector<std::uint64_t> places(rows.size());
    for (std::uint64_t i = 0; i < places.size(); ++i) places[i] = rows.place(i);
    made->node = &made->copied.emplace(node, places, file_bytes).node();
  }
  expect_whole(*source->file.arrays().mapping());
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

nb::object arrow_schema(const Rows& rows) { return schema_of(rows.decoder().node()); }

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
  if (stream->release == nullptr) throw nb::value_error("the Arrow stream was read before");
  const ReleaseGil release;
  return records::import_stream(*stream, rows, [&each] {
    const AcquireGil acquire;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    each();
  });
}

}  // namespace onecopy::bindings
