#include "onecopy/formats/npz.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "formats/left_out.hpp"
#include "formats/numpy/npy_array.hpp"
#include "formats/wire/json.hpp"
#include "formats/wire/zip.hpp"
#include "onecopy/base/error.hpp"

namespace onecopy::npz {
namespace {

constexpr std::string_view suffix = ".npy";

std::string_view without_suffix(std::string_view name) noexcept { return name.substr(0, name.size() - suffix.size()); }

[[noreturn]] void refuse(const LeftOut& left_out, const std::string& reason) {
  if (left_out.has("compressed"))
    reject(FormatError::unsupported,
           "npz: its members are compressed, and cannot be mapped: write them with numpy.savez instead of "
           "savez_compressed, or with onecopy.save(path, dict(numpy.load(file)))");
  reject(FormatError::unsupported, reason.empty() ? "npz: the archive contains no arrays" : "npz: " + reason);
}

}  // namespace

bool is_npz(Bytes file) {
  return zip::any_name(file, [](std::string_view name) { return name.ends_with(suffix); });
}

Index parse(Bytes file) {
  EntryList entries;
  LeftOut left_out;
  std::string first_reason;
  for (const zip::Member& member : zip::members(file)) {
    if (!member.name.ends_with(suffix)) {
      left_out.add("not an array", std::string(member.name));
      continue;
    }
    const auto name = without_suffix(member.name);
    if (member.method != zip::Method::stored) {
      left_out.add("compressed", std::string(name));
      continue;
    }
    try {
      const std::string reason = npy::add_array(file, member.data, name, entries);
      if (reason.empty()) continue;
      left_out.add("Python objects or structures", std::string(name));
      if (first_reason.empty()) first_reason = json::describe(name) + ' ' + reason;
    } catch (const FormatError& error) {
      const auto error_of_file = error.moved_by(member.data.offset);
      throw FormatError(error.kind(), "npz: " + json::describe(name) + ": " + error.what(), error_of_file.offset());
    }
  }
  if (entries.empty()) refuse(left_out, first_reason);
  std::map<std::string, std::string, std::less<>> metadata;
  left_out.report(metadata);
  return std::move(entries).finish_at_first("npz", std::move(metadata), 0);
}

}  // namespace onecopy::npz
