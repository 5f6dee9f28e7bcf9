#include "formats/left_out.hpp"

#include "formats/wire/json.hpp"

namespace onecopy {

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
