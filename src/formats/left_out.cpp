#include "formats/left_out.hpp"

#include "formats/wire/json.hpp"

namespace onecopy {

std::string LeftOut::reasons_but(std::string_view one) const {
  std::string all;
  int left = 20;
  for (const auto& [why, names] : names_)
    if (why != one && left-- > 0) all += (all.empty() ? "" : ", ") + why;
  return all;
}

void LeftOut::report(std::map<std::string, std::string, std::less<>>& metadata) const {
  std::string text;
  for (const auto& [why, names] : names_) {
    text += (text.empty() ? "{" : ", ") + json::quoted(why) + ": [";
    for (const auto& name : names) text += (&name == &names.front() ? "" : ", ") + json::quoted(name);
    text += ']';
  }
  metadata.erase("left out");
  if (!text.empty()) metadata.emplace("left out", text + '}');
}

}  // namespace onecopy
