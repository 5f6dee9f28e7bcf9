#include "onecopy/formats/npz.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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
  reject(FormatError::unsupported, reason.empty() ? "npz: the archive has no arrays" : "npz: " + reason);
}

}  // namespace

bool is_npz(Bytes file) {
  const auto first = zip::first_name(file);
  if (first.empty()) return false;
  if (first.ends_with(suffix)) return true;
  try {
    return std::ranges::any_of(zip::members(file), [](const auto& member) { return member.name.ends_with(suffix); });
  } catch (const FormatError&) {
    return false;  // an unreadable directory: the format is unknown
  }
}

Index parse(Bytes file) {
  std::vector<FoundArray> arrays;
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
      auto found = npy::read_array(file, member.data);
      if (found.reason.empty()) {
        found.array.name = name;
        arrays.push_back(std::move(found.array));
      } else {
        left_out.add("Python objects or structures", std::string(name));
        if (first_reason.empty()) first_reason = json::describe(name) + ' ' + found.reason;
      }
    } catch (const FormatError& error) {
      const auto error_of_file = error.moved_by(member.data.offset);
      throw FormatError(error.kind(), "npz: " + json::describe(name) + ": " + error.what(), error_of_file.offset());
    }
  }
  if (arrays.empty()) refuse(left_out, first_reason);
  std::map<std::string, std::string, std::less<>> metadata;
  left_out.report(metadata);
  return index_of(std::move(arrays), std::move(metadata), "npz");
}

}  // namespace onecopy::npz
