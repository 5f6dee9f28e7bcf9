// One line of JSON: numbers by name.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace bench {

class Json {
 public:
  Json& add(std::string_view name, std::uint64_t number) { return put(name, std::to_string(number)); }
  Json& add(std::string_view name, std::string_view text) { return put(name, "\"" + std::string(text) + "\""); }
  Json& add(std::string_view name, const Json& inner) { return put(name, inner.text()); }
  Json& add_null(std::string_view name) { return put(name, "null"); }

  std::string text() const { return "{" + fields_ + "}"; }

 private:
  Json& put(std::string_view name, const std::string& value) {
    if (!fields_.empty()) fields_ += ", ";
    fields_ += "\"" + std::string(name) + "\": " + value;
    return *this;
  }

  std::string fields_;
};

}  // namespace bench
