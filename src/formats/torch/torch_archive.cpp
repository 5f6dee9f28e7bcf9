#include <algorithm>

#include "formats/torch/torch_tensor.hpp"
#include "formats/wire/json.hpp"
#include "onecopy/base/error.hpp"
#include "onecopy/formats/torch_zip.hpp"

namespace onecopy::torch_zip {

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
  const Bytes bytes = file_.subspan(member.data.offset, member.data.length);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace onecopy::torch_zip
