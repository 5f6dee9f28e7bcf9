// What a file contains besides the entries of its Index: metadata["left out"] is JSON with lists of names by reason,
// the same for all containers. The names are valid UTF-8, and their parser limits their total size.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace onecopy {

class LeftOut {
 public:
  void add(std::string_view why, std::string name) { names_[std::string(why)].push_back(std::move(name)); }
  bool has(std::string_view why) const { return names_.contains(why); }

  // All reasons but one, joined by ", ": at most 20.
  std::string reasons_but(std::string_view one) const;

  // A key "left out" from the file itself is replaced or removed.
  void report(std::map<std::string, std::string, std::less<>>& metadata) const;

 private:
  std::map<std::string, std::vector<std::string>, std::less<>> names_;
};

}  // namespace onecopy
