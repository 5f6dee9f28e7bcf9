#include <algorithm>
#include <array>
#include <iterator>

#include "formats/torch/torch_tensor.hpp"
#include "formats/wire/json.hpp"
#include "onecopy/base/error.hpp"
#include "onecopy/formats/torch_zip.hpp"

namespace onecopy::torch_zip {

// All members are in one folder, which torch takes from the first member.
Archive::Archive(Bytes file) : file_(file), members_(zip::members(file)) {
  if (members_.empty()) throw FormatError(FormatError::malformed, "torch: the archive is empty");
  const auto first = members_.front().name;
  folder_ = first.substr(0, std::min(first.find('/'), first.size()));
  const auto is_outside = [this](const zip::Member& member) {
    return !member.name.starts_with(folder_) || !member.name.substr(folder_.size()).starts_with('/');
  };
  if (const auto outside = std::ranges::find_if(members_, is_outside); outside != members_.end())
    throw FormatError(FormatError::malformed,
                      "torch: " + json::describe(outside->name) + " does not lie in a folder with the other members");
  for (zip::Member& member : members_) member.name.remove_prefix(folder_.size() + 1);
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
  const Bytes bytes = file_.subspan(member.data.offset, member.data.length);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

void Objects::add(std::string_view module, std::string_view name) {
  names_.insert(std::string(module) + '.' + std::string(name));
  if (names_.size() > most_objects) names_.erase(std::prev(names_.end()));
}

std::string Objects::joined() const {
  std::string all;
  for (const auto& name : names_) all += (all.empty() ? "" : ", ") + name;
  return all;
}

bool is_known(pickle::Global function) noexcept {
  constexpr std::array known{
      pickle::Global{"torch._utils", "_rebuild_tensor"},
      pickle::Global{"torch._utils", "_rebuild_tensor_v2"},
      pickle::Global{"torch._utils", "_rebuild_tensor_v3"},
      pickle::Global{"torch._utils", "_rebuild_parameter"},
      pickle::Global{"torch._utils", "_rebuild_parameter_with_state"},
      pickle::Global{"torch._tensor", "_rebuild_from_type"},
      pickle::Global{"torch._tensor", "_rebuild_from_type_v2"},
      pickle::Global{"torch", "Size"},
      pickle::Global{"torch", "device"},
      pickle::Global{"torch", "Tensor"},
      pickle::Global{"torch.nn.parameter", "Parameter"},
      pickle::Global{"collections", "OrderedDict"},
      pickle::Global{"collections", "defaultdict"},
      pickle::Global{"_codecs", "encode"},  // bytes, in protocol 2
      pickle::Global{"__builtin__", "set"},
      pickle::Global{"__builtin__", "frozenset"},
      pickle::Global{"__builtin__", "bytearray"},
      pickle::Global{"__builtin__", "complex"},
      pickle::Global{"builtins", "complex"},
      pickle::Global{"builtins", "bytearray"},
  };
  return std::ranges::find(known, function) != known.end();
}

}  // namespace onecopy::torch_zip
