#include "formats/torch/torch_tensor.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "formats/checked_size.hpp"
#include "formats/wire/cursor.hpp"
#include "formats/wire/json.hpp"
#include "onecopy/base/error.hpp"
#include "onecopy/formats/torch_zip.hpp"

namespace onecopy::torch_zip {

struct ElementType {
  std::string_view name;  // torch.<name>
  std::uint64_t size;     // bytes
  std::optional<DType> dtype;
};

namespace {

using json::describe;
using pickle::Global;
using pickle::Id;
using pickle::Kind;

constexpr std::array<ElementType, 27> element_types{{
    {"float64", 8, DType::f64},
    {"float32", 4, DType::f32},
    {"float16", 2, DType::f16},
    {"bfloat16", 2, DType::bf16},
    {"int64", 8, DType::i64},
    {"int32", 4, DType::i32},
    {"int16", 2, DType::i16},
    {"int8", 1, DType::i8},
    {"uint64", 8, DType::u64},
    {"uint32", 4, DType::u32},
    {"uint16", 2, DType::u16},
    {"uint8", 1, DType::u8},
    {"bool", 1, DType::boolean},
    {"complex64", 8, DType::c64},
    {"float8_e4m3fn", 1, DType::f8_e4m3},
    {"float8_e5m2", 1, DType::f8_e5m2},
    {"float8_e4m3fnuz", 1, DType::f8_e4m3fnuz},
    {"float8_e5m2fnuz", 1, DType::f8_e5m2fnuz},
    {"float8_e8m0fnu", 1, DType::f8_e8m0},
    {"complex128", 16, {}},
    {"complex32", 4, {}},
    {"float4_e2m1fn_x2", 1, {}},  // its shape counts pairs, and that of DType::f4 counts numbers
    {"bits8", 1, {}},
    {"bits16", 2, {}},
    {"bits1x8", 1, {}},
    {"bits2x4", 1, {}},
    {"bits4x2", 1, {}},
}};

// A storage's class in the pickle, and torch's type for its elements.
constexpr std::array<std::pair<std::string_view, std::string_view>, 12> storage_types{{
    {"DoubleStorage", "float64"},
    {"FloatStorage", "float32"},
    {"HalfStorage", "float16"},
    {"BFloat16Storage", "bfloat16"},
    {"LongStorage", "int64"},
    {"IntStorage", "int32"},
    {"ShortStorage", "int16"},
    {"CharStorage", "int8"},
    {"ByteStorage", "uint8"},
    {"BoolStorage", "bool"},
    {"ComplexFloatStorage", "complex64"},
    {"ComplexDoubleStorage", "complex128"},
}};

constexpr Global untyped_storage{"torch.storage", "UntypedStorage"};
constexpr std::size_t longest_key = 100;  // bytes; torch counts its storages
constexpr int most_wraps = 8;             // a parameter of a subclass of a tensor needs two

const ElementType* element_type(Global type) noexcept {
  const auto found = std::ranges::find(element_types, type.name, &ElementType::name);
  return type.module == "torch" && found != element_types.end() ? found : nullptr;
}

const ElementType* storage_element(Global type) noexcept {
  if (type == untyped_storage || type == Global{"torch", "UntypedStorage"}) return element_type({"torch", "uint8"});
  const auto found = std::ranges::find(storage_types, type.name, [](const auto& pair) { return pair.first; });
  return type.module == "torch" && found != storage_types.end() ? element_type({"torch", found->second}) : nullptr;
}

std::string text_of(Global global) { return std::string(global.module) + '.' + std::string(global.name); }

// Understands a tensor of a subclass, or with attributes: a call with a function that makes a tensor, a class, and
// arguments.
bool is_from_type(Global function) noexcept {
  return function.module == "torch._tensor" && function.name.starts_with("_rebuild_from_type");
}

// The range of `count` elements that these axes reach from element `first` on, in elements; none: it exceeds them. The
// remainder only decreases, so nothing can wrap.
std::optional<std::uint64_t> reach(const FoundArray& array, std::uint64_t first, std::uint64_t count) noexcept {
  if (first >= count) return std::nullopt;
  const std::uint64_t all = count - first;
  std::uint64_t left = all - 1;  // after the first element
  for (std::size_t axis = 0; axis < array.shape.size(); ++axis) {
    const std::uint64_t steps = array.shape[axis] - 1;
    const std::uint64_t stride = array.strides[axis];
    if (steps == 0) continue;
    if (stride > left / steps) return std::nullopt;
    left -= steps * stride;
  }
  return all - left;
}

}  // namespace

// All members are in one folder, which torch takes from the first member.
Archive::Archive(Bytes file) : file_(file), members_(zip::members(file)) {
  if (members_.empty()) reject(FormatError::malformed, "torch: the archive is empty");
  const std::string folder = members_.front().name.substr(0, members_.front().name.find('/')) + '/';
  const auto is_outside = [&folder](const zip::Member& member) { return !member.name.starts_with(folder); };
  if (const auto outside = std::ranges::find_if(members_, is_outside); outside != members_.end())
    reject(FormatError::malformed,
           "torch: " + json::describe(outside->name) + " does not lie in a folder with the other members");
  for (zip::Member& member : members_) member.name.erase(0, folder.size());
  std::ranges::sort(members_, {}, &zip::Member::name);
}

const zip::Member* Archive::find(std::string_view name) const noexcept {
  const auto found = std::ranges::lower_bound(members_, name, {}, &zip::Member::name);
  return found != members_.end() && found->name == name ? &*found : nullptr;
}

bool Archive::has_folder(std::string_view name) const noexcept {
  const auto found = std::ranges::lower_bound(members_, name, {}, &zip::Member::name);
  return found != members_.end() && found->name.starts_with(name);
}

std::string_view Archive::text(const zip::Member& member) const noexcept {
  return onecopy::text_of(file_.subspan(member.data.offset, member.data.length));
}

std::optional<Global> TensorReader::global(Id id) const noexcept {
  return values_.kind(id) == Kind::global ? std::optional(values_.global(id)) : std::nullopt;
}

// A parameter is made from a tensor, and a tensor of a subclass by another call: returns the innermost tensor.
std::optional<TensorReader::Call> TensorReader::innermost(Id object) const {
  auto function = global(values_.callable(object));
  Id arguments = values_.arguments(object);
  for (int wraps = 0; function && wraps < most_wraps; ++wraps) {
    const auto items = values_.items(arguments);
    if (is_from_type(*function)) {
      if (items.size() < 3 || values_.kind(items[2]) != Kind::tuple) return std::nullopt;
      function = global(items[0]);
      arguments = items[2];
    } else if (*function == Global{"torch._utils", "_rebuild_parameter"} ||
               *function == Global{"torch._utils", "_rebuild_parameter_with_state"}) {
      if (items.empty() || values_.kind(items[0]) != Kind::object) return std::nullopt;
      function = global(values_.callable(items[0]));
      arguments = values_.arguments(items[0]);
    } else {
      return Call{*function, items};
    }
  }
  return std::nullopt;
}

std::optional<FoundArray> TensorReader::read(Id object, const std::string& name, std::string& why) const {
  const auto function = global(values_.callable(object));
  why = function ? text_of(*function) : "an object";
  const auto call = innermost(object);
  if (!call || call->function.module != "torch._utils") return std::nullopt;
  if (call->function.name == "_rebuild_tensor") return place(*call, 4, name, why);
  if (call->function.name == "_rebuild_tensor_v2") return place(*call, 6, name, why);
  if (call->function.name == "_rebuild_tensor_v3") return place(*call, 7, name, why);
  return std::nullopt;
}

// Arguments: storage, first element, sizes, strides; longer forms add gradients and hooks; with 7 the type; after the
// minimum come optional attributes.
std::optional<FoundArray> TensorReader::place(const Call& call, std::size_t least, const std::string& name,
                                              std::string& why) const {
  const auto& arguments = call.arguments;
  if (arguments.size() < least)
    reject(FormatError::malformed, "torch: ", describe(name), " is made of ", arguments.size(),
           " arguments, fewer than the ", least, " of ", call.function.name);
  if (!is_plain(call, least)) {
    why = "conjugated or negated";
    return std::nullopt;
  }
  const auto from = storage(arguments[0], name, why);
  if (!from) return std::nullopt;
  const ElementType* type = least == 7 ? own_type(arguments[6], name, why) : from->element;
  if (type == nullptr) return std::nullopt;
  FoundArray array;
  array.name = name;
  if (type->dtype)
    array.dtype = *type->dtype;
  else
    array.raw_type = type->name;
  read_axes(array, call);
  const auto size = checked_size(array.shape, type->size, INT64_MAX);
  if (!size)
    reject(FormatError::out_of_bounds, "torch: the sizes of " + describe(name) + " need more than 2^63 - 1 bytes");
  array.data = {from->bytes.offset, 0};
  if (*size != 0) {
    const std::uint64_t first = count(arguments[1], "first element", name);
    const auto reached = reach(array, first, from->bytes.length / type->size);
    if (!reached)
      reject(FormatError::out_of_bounds, "torch: ", describe(name), " reaches beyond the ", from->bytes.length,
             " bytes of its storage, from element ", first, " on");
    array.data = {from->bytes.offset + first * type->size, *reached * type->size};
  }
  if (last_runs_fastest(array.shape, array.strides)) array.strides.clear();
  return array;
}

void TensorReader::read_axes(FoundArray& array, const Call& call) const {
  array.shape = counts(call.arguments[2], "sizes", array.name);
  array.strides = counts(call.arguments[3], "strides", array.name);
  if (array.shape.size() != array.strides.size())
    reject(FormatError::inconsistent, "torch: ", describe(array.name), " has ", array.shape.size(), " sizes and ",
           array.strides.size(), " strides");
}

// The type named by the call; null: an unknown type.
const ElementType* TensorReader::own_type(Id id, const std::string& name, std::string& why) const {
  const auto type = global(id);
  if (!type) reject(FormatError::unsupported, "torch: the type of " + describe(name) + " is unknown");
  const ElementType* known = element_type(*type);
  if (known == nullptr) why = text_of(*type);
  return known;
}

// A complex tensor may be conjugated, and any tensor negated, by a flag outside its bytes.
bool TensorReader::is_plain(const Call& call, std::size_t least) const noexcept {
  if (call.arguments.size() <= least) return true;
  const Id more = call.arguments[least];
  return values_.kind(more) == Kind::none || (values_.kind(more) == Kind::dict && values_.items(more).empty());
}

// ('storage', class, key, location, elements); none: the class is unknown.
std::optional<TensorReader::Storage> TensorReader::storage(Id id, const std::string& name, std::string& why) const {
  const auto facts = values_.kind(id) == Kind::persistent && values_.kind(values_.key(id)) == Kind::tuple
                         ? values_.items(values_.key(id))
                         : std::span<const Id>();
  if (facts.size() != 5 || values_.kind(facts[0]) != Kind::text || values_.text(facts[0]) != "storage" ||
      values_.kind(facts[1]) != Kind::global || values_.kind(facts[2]) != Kind::text)
    reject(FormatError::malformed,
           "torch: the storage of " + describe(name) + " is not described by class, key, device and size");
  const Global type = values_.global(facts[1]);
  const ElementType* element = storage_element(type);
  if (element == nullptr) {
    why = text_of(type);
    return std::nullopt;
  }
  const auto key = values_.text(facts[2]);
  const zip::Member& found = member(key, name);
  const std::uint64_t elements = count(facts[4], "storage's size", name);
  const std::uint64_t size = found.data.length;
  if (size % element->size != 0 || size / element->size != elements)
    reject(FormatError::inconsistent, "torch: ", describe(name), " lies in ", describe("data/" + std::string(key)),
           ", which has ", size, " bytes, but should have ", elements, " elements of ", element->size);
  return Storage{element, found.data};
}

const zip::Member& TensorReader::member(std::string_view key, const std::string& name) const {
  if (key.size() > longest_key || !json::is_utf8(key))
    reject(FormatError::malformed, "torch: the key of the storage of ", describe(name),
           " is not UTF-8, or has more than ", longest_key, " bytes");
  const std::string path = "data/" + std::string(key);
  const zip::Member* member = archive_.find(path);
  if (member == nullptr)
    reject(FormatError::out_of_bounds,
           "torch: " + describe(name) + " lies in " + describe(path) + ", which is not in the archive");
  if (member->method != zip::Method::stored)
    reject(FormatError::unsupported,
           "torch: " + describe(name) + " lies in " + describe(path) +
               ", which is compressed and cannot be mapped in place: torch.save writes it uncompressed");
  return *member;
}

std::uint64_t TensorReader::count(Id id, std::string_view what, const std::string& name) const {
  if (values_.kind(id) != Kind::integer || values_.integer(id) < 0)
    reject(FormatError::malformed, "torch: the ", what, " of ", describe(name), " is not a count");
  return static_cast<std::uint64_t>(values_.integer(id));
}

std::vector<std::uint64_t> TensorReader::counts(Id id, std::string_view what, const std::string& name) const {
  if (values_.kind(id) == Kind::object && global(values_.callable(id)) == Global{"torch", "Size"})
    if (const auto items = values_.items(values_.arguments(id)); items.size() == 1) id = items[0];
  if (values_.kind(id) != Kind::tuple && values_.kind(id) != Kind::list)
    reject(FormatError::malformed, "torch: the ", what, " of ", describe(name), " are not a tuple");
  const auto items = values_.items(id);
  if (items.size() > most_axes)
    reject(FormatError::too_costly, "torch: ", describe(name), " has more than ", most_axes, " axes");
  std::vector<std::uint64_t> numbers;
  numbers.reserve(items.size());
  for (const Id item : items) numbers.push_back(count(item, what, name));
  return numbers;
}

}  // namespace onecopy::torch_zip
