#include "structs/columns.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>
#include <utility>

#include "onecopy/base/error.hpp"
#include "onecopy/structs/schema.hpp"
#include "structs/walk.hpp"

namespace onecopy::structs {
namespace {

constexpr std::size_t buffer_size = std::size_t{64} << 10U;

// Collects small pieces.
class Buffered {
 public:
  explicit Buffered(const ByteSink& sink) : sink_(sink) { buffer_.reserve(buffer_size); }

  void add(const std::byte* bytes, std::size_t size) {
    if (size >= buffer_size) {
      flush();
      sink_({bytes, size});
      return;
    }
    if (buffer_.size() + size > buffer_size) flush();
    buffer_.insert(buffer_.end(), bytes, bytes + size);
  }

  void flush() {
    if (!buffer_.empty()) sink_(buffer_);
    buffer_.clear();
  }

 private:
  const ByteSink& sink_;
  std::vector<std::byte> buffer_;
};

// `count` contiguous values, with padding as zeros.
void add_values(Buffered& out, const Type& type, const std::vector<Part>& parts, const std::byte* values,
                std::uint64_t count) {
  if (count == 0) return;
  if (parts.size() == 1 && parts.front().length == type.size) return out.add(values, count * type.size);
  std::vector<std::byte> clean(type.size);
  for (std::uint64_t i = 0; i < count; ++i) {
    for (const auto& part : parts)
      std::memcpy(clean.data() + part.offset, values + i * type.size + part.offset, part.length);
    out.add(clean.data(), clean.size());
  }
}

// Which part of the value is gathered.
struct Branch {
  std::string path;
  bool is_root = false;  // or a field of the root: there is one, instead of one for each element of a sequence
  int depth = 0;

  Branch in(std::string elements) const { return {std::move(elements), false, depth + 1}; }
};

class Gatherer {
 public:
  void gather(const Type& type, const Places& places, const Branch& branch) {
    expect_depth(branch.depth, branch.path);
    switch (type.form) {
      case Form::record: return record(type, places, branch);
      case Form::sequence: return sequence(type, places, branch);
      case Form::array:
        if (!type.fixed) return gather(*type.element, spread(type, places), branch.in(of_elements(branch.path, type)));
        [[fallthrough]];
      case Form::number:
      case Form::opaque: return values(type, places, branch);
    }
  }

  std::vector<Column> take() {
    // NOLINTNEXTLINE(modernize-use-ranges): libstdc++ 12's does not compile with clang 14
    std::stable_partition(columns_.begin(), columns_.end(), [](const Column& column) { return column.bytes <= small; });
    return std::move(columns_);
  }

 private:
  static constexpr std::uint64_t small = 64;

  void record(const Type& type, const Places& places, const Branch& branch) {
    const auto fields = fields_in(type, places.count == 0 ? nullptr : places[0]);
    for (std::uint64_t i = 1; i < places.count; ++i) expect_same_fields(type, places[i], fields, branch.path);
    for (const auto& field : fields)
      gather(*field.type, places.shifted(field.offset),
             {join(branch.path, field.name), branch.is_root, branch.depth + 1});
  }

  void values(const Type& type, const Places& places, const Branch& branch) {
    const std::string& path = branch.path;
    auto shape = extents_of(type);
    if (!branch.is_root) shape.insert(shape.begin(), places.count);
    add(path, path, dtype_of(type), std::move(shape), times(places.count, type.size, path), type.alignment,
        [&type, places, parts = parts_of(type)](const ByteSink& sink) {
          Buffered out(sink);
          for (std::uint64_t i = 0; i < places.count; ++i) add_values(out, type, parts, places[i], 1);
          out.flush();
        });
  }

  void sequence(const Type& type, const Places& places, const Branch& branch) {
    const std::string& path = branch.path;
    const auto& ops = *type.sequence;
    const auto offsets = std::make_shared<std::vector<std::uint64_t>>(1, 0);
    offsets->reserve(places.count + 1);
    for (std::uint64_t i = 0; i < places.count; ++i) {
      std::uint64_t end = 0;
      if (__builtin_add_overflow(offsets->back(), ops.count(places[i]), &end))
        reject(FormatError::too_costly, "'" + path + "' has more elements than 64 bits can count");
      offsets->push_back(end);
    }
    const std::uint64_t total = offsets->back();
    const std::string field = type.element->fixed ? path : of_elements(path, type);
    if (!branch.is_root)
      add(named(path, ".offsets"), field, DType::u64, {offsets->size()}, offsets->size() * sizeof(std::uint64_t),
          alignof(std::uint64_t), [offsets](const ByteSink& sink) { sink(std::as_bytes(std::span(*offsets))); });
    else if (!type.element->fixed)
      add(named(path, ".count"), field, DType::u64, {}, sizeof(std::uint64_t), alignof(std::uint64_t),
          [total](const ByteSink& sink) { sink(std::as_bytes(std::span(&total, 1))); });
    if (!type.element->fixed) return gather(*type.element, elements(type, places, total), branch.in(field));
    auto shape = extents_of(*type.element);
    shape.insert(shape.begin(), total);
    add(path, field, dtype_of(*type.element), std::move(shape), times(total, type.element->size, path),
        type.element->alignment, [&type, places, parts = parts_of(*type.element)](const ByteSink& sink) {
          Buffered out(sink);
          for (std::uint64_t i = 0; i < places.count; ++i)
            add_values(out, *type.element, parts, type.sequence->items(places[i]), type.sequence->count(places[i]));
          out.flush();
        });
  }

  // All elements of all sequences.
  static Places elements(const Type& type, const Places& sequences, std::uint64_t total) {
    const auto& ops = *type.sequence;
    const std::size_t stride = type.element->size;
    const auto first = [&ops](const std::byte* place) {
      return const_cast<std::byte*>(ops.items(place));  // NOLINT(cppcoreguidelines-pro-type-const-cast)
    };
    if (sequences.count == 1) return {first(sequences[0]), stride, total, nullptr, 0};
    std::vector<std::byte*> list;
    list.reserve(total);
    for (std::uint64_t i = 0; i < sequences.count; ++i)
      for (std::uint64_t k = 0; k < ops.count(sequences[i]); ++k) list.push_back(first(sequences[i]) + k * stride);
    return {nullptr, 0, total, std::make_shared<const std::vector<std::byte*>>(std::move(list)), 0};
  }

  void add(const std::string& name, const std::string& field, DType dtype, std::vector<std::uint64_t> shape,
           std::uint64_t bytes, std::size_t alignment, std::function<void(const ByteSink&)> write) {
    columns_.push_back({{named(name), dtype, std::move(shape)}, named(field), bytes, alignment, std::move(write)});
  }

  std::vector<Column> columns_;
};

}  // namespace

std::vector<Column> columns_of(const Type& type, const void* value) {
  Gatherer gatherer;
  // Columns only read; one kind of Places serves saving and opening.
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-const-cast)
  auto* place = const_cast<std::byte*>(static_cast<const std::byte*>(value));
  gatherer.gather(type, {place, 0, 1, nullptr, 0}, {.is_root = true});
  return gatherer.take();
}

}  // namespace onecopy::structs
