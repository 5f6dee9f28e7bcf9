#include "onecopy/formats/torch_zip.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/checked_size.hpp"
#include "formats/entry_list.hpp"
#include "formats/left_out.hpp"
#include "formats/signatures.hpp"
#include "formats/torch/pickle_reader.hpp"
#include "formats/wire/cursor.hpp"
#include "formats/wire/json.hpp"
#include "formats/wire/zip.hpp"
#include "formats/work_budget.hpp"
#include "onecopy/base/error.hpp"

namespace onecopy::torch_zip {
namespace {

using json::describe;
using pickle::Global;
using pickle::Id;
using pickle::Kind;

struct ElementType {
  std::string_view name;  // torch.<name>
  std::uint64_t size;     // bytes
  std::optional<DType> dtype;
};

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

// The members of a checkpoint, by their names relative to the common folder.
class Archive {
 public:
  // All members are in one folder, which torch takes from the first member.
  explicit Archive(Bytes file) : file_(file), members_(zip::members(file)) {
    if (members_.empty()) reject(FormatError::malformed, "torch: the archive is empty");
    const std::string folder = members_.front().name.substr(0, members_.front().name.find('/')) + '/';
    const auto is_outside = [&folder](const zip::Member& member) { return !member.name.starts_with(folder); };
    if (const auto outside = std::ranges::find_if(members_, is_outside); outside != members_.end())
      reject(FormatError::malformed,
             "torch: " + json::describe(outside->name) + " is not in the same folder as the other members");
    for (zip::Member& member : members_) member.name.erase(0, folder.size());
    std::ranges::sort(members_, {}, &zip::Member::name);
  }

  const zip::Member* find(std::string_view name) const noexcept {
    const auto found = std::ranges::lower_bound(members_, name, {}, &zip::Member::name);
    return found != members_.end() && found->name == name ? &*found : nullptr;
  }

  bool has_folder(std::string_view name) const noexcept {
    const auto found = std::ranges::lower_bound(members_, name, {}, &zip::Member::name);
    return found != members_.end() && found->name.starts_with(name);
  }

  std::string_view text(const zip::Member& member) const noexcept {
    return onecopy::text_of(file_.subspan(member.data.offset, member.data.length));
  }

 private:
  Bytes file_;
  std::vector<zip::Member> members_;  // by name
};

// Converts the calls in a pickle that make tensors to the positions of their elements.
class TensorReader {
 public:
  TensorReader(const pickle::Values& values, const Archive& archive) noexcept : values_(values), archive_(archive) {}

  // None: the object is not a tensor with readable elements, and `why` is the reason. Throws FormatError for a tensor
  // with wrong arguments.
  std::optional<FoundArray> read(Id object, const std::string& name, std::string& why) const {
    const auto function = global(values_.callable(object));
    why = function ? text_of(*function) : "an object";
    const auto call = innermost(object);
    if (!call || call->function.module != "torch._utils") return std::nullopt;
    if (call->function.name == "_rebuild_tensor") return place(*call, 4, name, why);
    if (call->function.name == "_rebuild_tensor_v2") return place(*call, 6, name, why);
    if (call->function.name == "_rebuild_tensor_v3") return place(*call, 7, name, why);
    return std::nullopt;
  }

 private:
  struct Call {
    pickle::Global function;
    std::span<const pickle::Id> arguments;
  };
  struct Storage {
    const ElementType* element = nullptr;
    ByteRange bytes;
  };

  std::optional<Global> global(Id id) const noexcept {
    return values_.kind(id) == Kind::global ? std::optional(values_.global(id)) : std::nullopt;
  }

  // A parameter is made from a tensor, and a tensor of a subclass by another call: returns the innermost tensor.
  std::optional<Call> innermost(Id object) const {
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

  // Arguments: storage, first element, sizes, strides; longer forms add gradients and hooks; with 7 the type; after the
  // minimum come optional attributes.
  std::optional<FoundArray> place(const Call& call, std::size_t least, const std::string& name,
                                  std::string& why) const {
    const auto& arguments = call.arguments;
    if (arguments.size() < least)
      reject(FormatError::malformed, "torch: ", describe(name), " is created from ", arguments.size(),
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

  void read_axes(FoundArray& array, const Call& call) const {
    array.shape = counts(call.arguments[2], "sizes", array.name);
    array.strides = counts(call.arguments[3], "strides", array.name);
    if (array.shape.size() != array.strides.size())
      reject(FormatError::inconsistent, "torch: ", describe(array.name), " has ", array.shape.size(), " sizes and ",
             array.strides.size(), " strides");
  }

  // The type named by the call; null: an unknown type.
  const ElementType* own_type(Id id, const std::string& name, std::string& why) const {
    const auto type = global(id);
    if (!type) reject(FormatError::unsupported, "torch: the type of " + describe(name) + " is unknown");
    const ElementType* known = element_type(*type);
    if (known == nullptr) why = text_of(*type);
    return known;
  }

  // A complex tensor may be conjugated, and any tensor negated, by a flag outside its bytes.
  bool is_plain(const Call& call, std::size_t least) const noexcept {
    if (call.arguments.size() <= least) return true;
    const Id more = call.arguments[least];
    return values_.kind(more) == Kind::none || (values_.kind(more) == Kind::dict && values_.items(more).empty());
  }

  // ('storage', class, key, location, elements); none: the class is unknown.
  std::optional<Storage> storage(Id id, const std::string& name, std::string& why) const {
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
      reject(FormatError::inconsistent, "torch: ", describe(name), " is in ", describe("data/" + std::string(key)),
             ", which has ", size, " bytes, but should have ", elements, " elements of ", element->size);
    return Storage{element, found.data};
  }

  const zip::Member& member(std::string_view key, const std::string& name) const {
    if (key.size() > longest_key || !json::is_utf8(key))
      reject(FormatError::malformed, "torch: the key of the storage of ", describe(name),
             " is not UTF-8, or has more than ", longest_key, " bytes");
    const std::string path = "data/" + std::string(key);
    const zip::Member* member = archive_.find(path);
    if (member == nullptr)
      reject(FormatError::out_of_bounds,
             "torch: " + describe(name) + " is in " + describe(path) + ", which is not in the archive");
    if (member->method != zip::Method::stored)
      reject(FormatError::unsupported,
             "torch: " + describe(name) + " is in " + describe(path) +
                 ", which is compressed and cannot be mapped in place: torch.save writes it uncompressed");
    return *member;
  }

  std::uint64_t count(Id id, std::string_view what, const std::string& name) const {
    if (values_.kind(id) != Kind::integer || values_.integer(id) < 0)
      reject(FormatError::malformed, "torch: the ", what, " of ", describe(name), " is not a count");
    return static_cast<std::uint64_t>(values_.integer(id));
  }

  std::vector<std::uint64_t> counts(Id id, std::string_view what, const std::string& name) const {
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

  const pickle::Values& values_;
  const Archive& archive_;
};

constexpr std::string_view plain_values = "numbers, texts and other values";

// "<folder>/data.pkl", in one folder
bool is_root(std::string_view name) noexcept {
  const auto slash = name.find('/');
  return slash != std::string_view::npos && name.substr(slash) == "/data.pkl";
}

// Visits dicts, lists and tuples from the root, in their order. Since containers can be shared, a small pickle can have
// very many paths: their number and the bytes of all names are limited by the pickle's size.
class Walk {
 public:
  Walk(const pickle::Values& values, const TensorReader& tensors, LeftOut& left_out, std::uint64_t pickle_size)
      : values_(values),
        tensors_(tensors),
        left_out_(left_out),
        visits_(
            pickle_size,
            "torch: its dicts and lists have so many shared parts that there are more paths than bytes in the pickle"),
        left_out_bytes_left_(pickle_size),
        name_bytes_(pickle_size * 4 + 65536, "torch: the names of all tensors are much longer than the pickle") {}

  EntryList from(Id root) {
    visit(root);
    return std::move(entries_);
  }

 private:
  // False: a number, a text or another value without a use here.
  bool visit(Id id) {
    visits_.spend(1);
    switch (values_.kind(id)) {
      case Kind::dict: inside(id, [&] { visit_items(id); }); break;
      case Kind::list:
      case Kind::tuple: inside(id, [&] { visit_sequence(id); }); break;
      case Kind::object: visit_object(id); break;
      case Kind::persistent: leave_out("a storage without a tensor"); break;
      default: return false;
    }
    return true;
  }

  // Names are cut off where they would be longer than the pickle.
  void leave_out(std::string_view why) {
    const std::uint64_t length = path_.size() + 1;
    if (left_out_bytes_left_ != 0) left_out_.add(why, length <= left_out_bytes_left_ ? path_ : "...");
    left_out_bytes_left_ -= std::min(left_out_bytes_left_, length);
  }

  void visit_object(Id id) {
    const Id callable = values_.callable(id);
    const auto function = values_.kind(callable) == Kind::global ? values_.global(callable) : Global{};
    const bool is_ordered = function == Global{"collections", "OrderedDict"};
    const bool is_of_python_2 = is_ordered && !values_.items(values_.arguments(id)).empty();  // items as arguments
    if (function == Global{"collections", "defaultdict"} || (is_ordered && !is_of_python_2))
      return inside(id, [&] { visit_items(id); });
    name_bytes_.spend(path_.size());
    std::string why;
    if (auto found = tensors_.read(id, on_path_.empty() ? std::string(array_name) : path_, why))
      entries_.add(std::move(*found));
    else
      leave_out(why);
  }

  // A container that contains itself is visited once.
  template <class Visit>
  void inside(Id id, const Visit& visit_all) {
    if (std::ranges::find(on_path_, id) != on_path_.end()) return;
    if (on_path_.size() == deepest)
      reject(FormatError::too_costly,
             "torch: dicts and lists are nested more than " + std::to_string(deepest) + " deep");
    on_path_.push_back(id);
    visit_all();
    on_path_.pop_back();
  }

  void visit_items(Id id) {
    const auto items = values_.items(id);
    const auto visit_item = [this](std::string_view key, Id item) {
      visit_at(key, item, [this] { leave_out(plain_values); });
    };
    for (std::size_t i = 0; i < items.size(); i += 2) {
      if (values_.kind(items[i]) == Kind::text)
        visit_item(text(items[i]), items[i + 1]);
      else if (values_.kind(items[i]) == Kind::integer)
        visit_item(std::to_string(values_.integer(items[i])), items[i + 1]);
      else
        visit_item('[' + std::to_string(i / 2) + ']', items[i + 1]);  // the position of an item whose key has no name
    }
  }

  void visit_sequence(Id id) {
    const auto items = values_.items(id);
    bool is_left_out = false;
    for (std::size_t i = 0; i < items.size(); ++i)
      if (!visit_at(std::to_string(i), items[i], [] {})) is_left_out = true;
    if (is_left_out) leave_out(plain_values);  // under one name, that of the list
  }

  template <class LeaveOut>
  bool visit_at(std::string_view key, Id id, const LeaveOut& leave_out_item) {
    const std::size_t before = path_.size();
    name_bytes_.spend(key.size());
    if (on_path_.size() > 1) path_ += '.';
    path_ += key;
    const bool is_found = visit(id);
    if (!is_found) leave_out_item();
    path_.resize(before);
    return is_found;
  }

  std::string_view text(Id key) const {
    const auto text = values_.text(key);
    if (!json::is_utf8(text)) reject(FormatError::malformed, "torch: a key in " + describe(path_) + " is not UTF-8");
    return text;
  }

  const pickle::Values& values_;
  const TensorReader& tensors_;
  LeftOut& left_out_;
  WorkBudget visits_;
  std::uint64_t left_out_bytes_left_;
  WorkBudget name_bytes_;
  std::vector<Id> on_path_;
  std::string path_;
  EntryList entries_;
};

void check_kind(const Archive& archive) {
  if (archive.find("constants.pkl") != nullptr || archive.has_folder("code/"))
    throw FormatError(FormatError::not_this_format,
                      "torch: this is a TorchScript archive, which contains code for torch.jit.load; save the module's "
                      "state_dict() with "
                      "torch.save",
                      {}, "TorchScript archive");
  const zip::Member* order = archive.find("byteorder");
  if (order == nullptr) return;  // written before torch 2.1, in the unrecorded byte order of its machine
  if (order->method != zip::Method::stored)
    reject(FormatError::unsupported,
           "torch: its members are compressed and cannot be mapped: load the file, and save it again with "
           "torch.save, which does not compress them");
  if (archive.text(*order) != "little")
    reject(FormatError::unsupported,
           archive.text(*order) == "big"
               ? "torch: its numbers are big-endian, but only little-endian numbers can be mapped"
               : "torch: its byte order is neither little nor big");
}

const zip::Member& root_of(const Archive& archive) {
  const zip::Member* root = archive.find("data.pkl");
  if (root == nullptr)
    reject(FormatError::not_this_format, "torch: the archive contains no data.pkl (was it written by torch.save?)");
  if (root->method != zip::Method::stored)
    reject(FormatError::unsupported,
           "torch: data.pkl is compressed: save the file again with torch.save, which does not compress it");
  return *root;
}

pickle::Pickle read_pickle(const Archive& archive, const zip::Member& root) {
  try {
    return pickle::read(archive.text(root));
  } catch (const FormatError& error) {
    throw error.moved_by(root.data.offset);
  }
}

}  // namespace

bool is_torch_zip(Bytes file) { return signatures::legacy_torch.is_in(file) || zip::any_name(file, is_root); }

Index parse(Bytes file) {
  if (signatures::legacy_torch.is_in(file))
    reject(FormatError::unsupported,
           "torch: the legacy format of torch.save cannot be mapped: load the file, and save it again in the zip "
           "format, the default since torch 1.6");
  const Archive archive(file);
  check_kind(archive);
  const zip::Member& root = root_of(archive);
  const auto pickle = read_pickle(archive, root);
  const TensorReader tensors(pickle.values, archive);
  LeftOut left_out;
  auto entries = Walk(pickle.values, tensors, left_out, root.data.length).from(pickle.root);
  const auto reasons = left_out.reasons_but(plain_values);
  if (entries.empty() && !reasons.empty())
    reject(FormatError::not_this_format,
           "torch: its dicts and lists contain no tensors, only objects that would have to be unpickled: " + reasons +
               " (save a module's state_dict())");
  std::map<std::string, std::string, std::less<>> metadata{{"format", "pt"}};
  left_out.report(metadata);
  return std::move(entries).finish_at_first("torch", std::move(metadata), 0);
}

}  // namespace onecopy::torch_zip
