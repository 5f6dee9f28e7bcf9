#include "structs/walk.hpp"

#include <array>
#include <functional>
#include <memory>
#include <unordered_set>

#include "base/rounding.hpp"
#include "base/seeded_hash.hpp"
#include "formats/checked_size.hpp"
#include "onecopy/base/bytes.hpp"
#include "onecopy/base/error.hpp"
#include "onecopy/structs/schema.hpp"

namespace onecopy::structs {
namespace {

std::uint64_t address(const void* pointer) noexcept { return reinterpret_cast<std::uintptr_t>(pointer); }

class Collector final : public FieldSink {
 public:
  Collector(const void* object, std::size_t size) noexcept : object_(object), size_(size) {}

  void field(std::string_view name, const void* at, const Type& type) override {
    std::string text = name.empty() ? std::to_string(fields_.size()) : std::string(name);
    const std::uint64_t offset = address(at) - address(object_);  // wraps for what lies before: then out of bounds
    if (!in_bounds(size_, offset, type.size))
      reject(FormatError::unsupported,
             "visit() lists '" + text +
                 "', which is not a member of the object, but a local variable or the target of a pointer");
    if (text.find_first_of(".[]?#") != std::string::npos)
      reject(FormatError::unsupported,
             "visit() names a field '" + text + "'; '.', '[', ']', '?' and '#' have a special meaning in paths");
    if (!names_.insert(text).second) reject(FormatError::inconsistent, "visit() lists '" + text + "' twice");
    fields_.push_back({std::move(text), static_cast<std::size_t>(offset), &type});
  }

  std::vector<PlacedField> take() { return std::move(fields_); }

 private:
  const void* object_;
  std::size_t size_;
  std::vector<PlacedField> fields_;
  std::unordered_set<std::string, SeededHash> names_;
};

class Comparer final : public FieldSink {
 public:
  Comparer(const void* object, const std::vector<PlacedField>& expected) noexcept
      : object_(object), expected_(expected) {}

  void field(std::string_view /*name*/, const void* at, const Type& type) override {
    same_ = same_ && next_ < expected_.size() && expected_[next_].type == &type &&
            address(at) - address(object_) == expected_[next_].offset;
    ++next_;
  }

  bool same() const noexcept { return same_ && next_ == expected_.size(); }

 private:
  const void* object_;
  const std::vector<PlacedField>& expected_;
  std::size_t next_ = 0;
  bool same_ = true;
};

void collect_parts(const Type& type, std::size_t at, std::vector<Part>& parts) {
  if (type.form == Form::array) {
    for (std::uint64_t i = 0; i < type.count; ++i) collect_parts(*type.element, at + i * type.element->size, parts);
  } else if (type.form == Form::record) {
    std::size_t expected = 0;
    for (const auto& field : fields_in(type, nullptr)) {
      expected = round_up(expected, field.type->alignment);
      if (field.offset != expected)
        reject(FormatError::unsupported, "'", field.name, "' is at byte ", field.offset, " of its struct, not ",
               expected, ": alignas of members cannot be stored");
      expected += field.type->size;
      collect_parts(*field.type, at + field.offset, parts);
    }
  } else if (!parts.empty() && parts.back().offset + parts.back().length == at) {
    parts.back().length += type.size;
  } else {
    parts.push_back({at, type.size});
  }
}

}  // namespace

std::vector<PlacedField> fields_in(const Type& record, const void* object) {
  std::shared_ptr<void> made;
  if (object == nullptr) {
    if (record.make == nullptr)
      reject(FormatError::unsupported, "a class that has no default constructor cannot be opened");
    made = record.make();
    object = made.get();
  }
  Collector collector(object, record.size);
  record.visit(object, collector);
  return collector.take();
}

void expect_same_fields(const Type& record, const void* object, const std::vector<PlacedField>& expected,
                        const std::string& path) {
  if (!record.fields.empty()) return;  // an aggregate's fields are its type's
  Comparer comparer(object, expected);
  record.visit(object, comparer);
  if (!comparer.same())
    reject(FormatError::unsupported,
           "'" + path + "': visit() lists different fields for one element than for the first");
}

std::string join(const std::string& path, const std::string& name) { return path.empty() ? name : path + "." + name; }

std::string named(const std::string& path, std::string_view suffix) {
  return std::string(path.empty() ? root_path : path).append(suffix);
}

std::string of_elements(const std::string& path, const Type& container) {
  std::string text = named(path);
  auto sink = [&text](char c) { text.push_back(c); };
  write_path(sink, {.is_name = false, .elements = &container});
  return text;
}

bool is_within(std::string_view path, std::string_view part) noexcept {
  constexpr std::string_view separators = ".[?";
  return path.starts_with(part) &&
         (path.size() == part.size() || separators.find(path[part.size()]) != std::string_view::npos);
}

std::string type_text(const Type& type) {
  std::string text;
  auto sink = [&text](char c) { text.push_back(c); };
  write_type(sink, type);
  return text;
}

std::vector<std::uint64_t> extents_of(const Type& fixed) {
  if (fixed.form == Form::number) return {};
  if (fixed.form != Form::array) return {fixed.size};
  auto extents = extents_of(*fixed.element);
  extents.insert(extents.begin(), fixed.count);
  return extents;
}

DType dtype_of(const Type& fixed) {
  if (fixed.form == Form::array) return dtype_of(*fixed.element);
  return fixed.form == Form::number ? fixed.dtype : DType::u8;
}

void expect_depth(int depth, const std::string& path) {
  if (depth > deepest) reject(FormatError::too_costly, "'", path, "': types are nested more than ", deepest, " deep");
}

std::uint64_t times(std::uint64_t a, std::uint64_t b, const std::string& path) {
  const auto product = checked_size(std::array{a, b}, 1);
  if (!product) reject(FormatError::out_of_bounds, "'" + path + "': the number of values exceeds 64 bits");
  return *product;
}

Places spread(const Type& array, const Places& places) {
  const std::size_t stride = array.element->size;
  if (places.count == 1) return {places[0], stride, array.count, nullptr, 0};
  std::vector<std::byte*> list;
  list.reserve(places.count * array.count);
  for (std::uint64_t i = 0; i < places.count; ++i)
    for (std::uint64_t k = 0; k < array.count; ++k) list.push_back(places[i] + k * stride);
  const std::uint64_t count = list.size();
  return {nullptr, 0, count, std::make_shared<const std::vector<std::byte*>>(std::move(list)), 0};
}

std::vector<Part> parts_of(const Type& fixed) {
  std::vector<Part> parts;
  collect_parts(fixed, 0, parts);
  return parts;
}

}  // namespace onecopy::structs
