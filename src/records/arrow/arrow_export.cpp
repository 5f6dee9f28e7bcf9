#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "onecopy/records/arrow.hpp"
#include "records/arrow/arrow_form.hpp"

namespace onecopy::records {
namespace {

// Arrow's children are released one by one, in any order, also by a consumer that moved them out of their parent: so
// each owns everything it needs, and a share of the owner.
struct SchemaParts {
  std::string name, format, metadata;
  std::vector<ArrowSchema> children;
  std::vector<ArrowSchema*> pointers;
};

struct ArrayParts {
  std::shared_ptr<const void> owner;
  std::vector<const void*> buffers;
  std::vector<ArrowArray> children;
  std::vector<ArrowArray*> pointers;
};

template <class Struct, class Parts>
void release(Struct* self) noexcept {
  for (std::int64_t i = 0; i < self->n_children; ++i)
    if (self->children[i]->release != nullptr) self->children[i]->release(self->children[i]);
  delete static_cast<Parts*>(self->private_data);  // NOLINT(cppcoreguidelines-owning-memory): made below
  self->release = nullptr;
}

void append_number(std::string& text, std::size_t number) {
  const auto value = static_cast<std::int32_t>(number);
  char bytes[sizeof value];  // NOLINT(modernize-avoid-c-arrays)
  std::memcpy(bytes, &value, sizeof value);
  text.append(bytes, sizeof value);
}

// Arrow's own encoding: how many pairs, then key and value of each behind their lengths.
std::string metadata_of(const std::string& extension) {
  static constexpr std::string_view key = "ARROW:extension:name";
  std::string text;
  append_number(text, 1);
  append_number(text, key.size());
  text += key;
  append_number(text, extension.size());
  return text + extension;
}

ArrowSchema schema_of(const ArrowForm& form) {
  auto parts = std::make_unique<SchemaParts>();
  parts->name = form.name;
  parts->format = form.format;
  if (!form.extension.empty()) parts->metadata = metadata_of(form.extension);
  parts->children.reserve(form.children.size());
  for (const ArrowForm& child : form.children) parts->children.push_back(schema_of(child));
  for (ArrowSchema& child : parts->children) parts->pointers.push_back(&child);
  ArrowSchema schema{.format = parts->format.c_str(),
                     .name = parts->name.c_str(),
                     .metadata = parts->metadata.empty() ? nullptr : parts->metadata.data(),
                     .flags = form.nullable ? 2 : 0,
                     .n_children = static_cast<std::int64_t>(parts->children.size()),
                     .children = parts->pointers.data(),
                     .dictionary = nullptr,
                     .release = &release<ArrowSchema, SchemaParts>,
                     .private_data = nullptr};
  schema.private_data = parts.release();
  return schema;
}

ArrowArray array_of(const ArrowForm& form, const std::shared_ptr<const void>& owner) {
  auto parts = std::make_unique<ArrayParts>();
  parts->owner = owner;
  parts->buffers = form.buffers;
  parts->children.reserve(form.children.size());
  for (const ArrowForm& child : form.children) parts->children.push_back(array_of(child, owner));
  for (ArrowArray& child : parts->children) parts->pointers.push_back(&child);
  const bool never_null = !form.nullable || form.format.starts_with("+u");
  const std::int64_t nulls = form.format == "n" ? static_cast<std::int64_t>(form.length) : never_null ? 0 : -1;
  ArrowArray array{.length = static_cast<std::int64_t>(form.length),
                   .null_count = nulls,
                   .offset = static_cast<std::int64_t>(form.offset),
                   .n_buffers = static_cast<std::int64_t>(parts->buffers.size()),
                   .n_children = static_cast<std::int64_t>(parts->children.size()),
                   .buffers = parts->buffers.data(),
                   .children = parts->pointers.data(),
                   .dictionary = nullptr,
                   .release = &release<ArrowArray, ArrayParts>,
                   .private_data = nullptr};
  array.private_data = parts.release();
  return array;
}

struct Batch {
  ArrowForm form;
  std::shared_ptr<const void> owner;
  bool given = false;
};

Batch& batch_of(const ArrowArrayStream* stream) noexcept { return *static_cast<Batch*>(stream->private_data); }

// NOLINTBEGIN(misc-const-correctness): Arrow's signatures
int get_schema(ArrowArrayStream* stream, ArrowSchema* out) noexcept {
  try {
    *out = schema_of(batch_of(stream).form);
    return 0;
  } catch (...) {
    return ENOMEM;  // nothing else is left to fail
  }
}

int get_next(ArrowArrayStream* stream, ArrowArray* out) noexcept {
  try {
    Batch& batch = batch_of(stream);
    *out = ArrowArray{};  // released: the end
    if (!batch.given) *out = array_of(batch.form, batch.owner);
    batch.given = true;
    return 0;
  } catch (...) {
    return ENOMEM;
  }
}

// NOLINTEND(misc-const-correctness)
const char* get_last_error(ArrowArrayStream* /*stream*/) noexcept { return nullptr; }

void release_stream(ArrowArrayStream* stream) noexcept {
  delete &batch_of(stream);
  stream->release = nullptr;
}

}  // namespace

void export_schema(const Node& node, ArrowSchema& out) { out = schema_of(arrow_form(node, "", 0, 0)); }

void export_array(const Node& node, std::uint64_t start, std::uint64_t length, const std::shared_ptr<const void>& owner,
                  ArrowArray& out) {
  out = array_of(arrow_form(node, "", start, length), owner);
}

void export_stream(const Node& node, std::uint64_t start, std::uint64_t length, std::shared_ptr<const void> owner,
                   ArrowArrayStream& out) {
  auto batch = std::make_unique<Batch>(Batch{arrow_form(node, "", start, length), std::move(owner)});
  out = {get_schema, get_next, get_last_error, release_stream, nullptr};
  out.private_data = batch.release();
}

}  // namespace onecopy::records
