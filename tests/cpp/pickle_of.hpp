// Pickles opcode by opcode, as torch.save writes them in protocol 2.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "zip_of.hpp"

namespace onecopy::tests::opcodes {

inline std::string text(std::string_view text) { return 'X' + little(text.size(), 4) + std::string(text); }
inline std::string integer(std::uint64_t value) { return "\x8A\x08" + little(value, 8); }
inline std::string global(std::string_view module, std::string_view name) {
  return 'c' + std::string(module) + '\n' + std::string(name) + '\n';
}

inline std::string tuple(std::initializer_list<std::string> items) {
  std::string all = "(";
  for (const auto& item : items) all += item;
  return all + 't';
}

inline std::string counts(const std::vector<std::uint64_t>& numbers) {
  std::string all = "(";
  for (const auto number : numbers) all += integer(number);
  return all + 't';
}

// {key: value, ...}; the strings are key, value, key, ...
inline std::string dict(std::initializer_list<std::string> items) {
  std::string all = "}(";
  for (const auto& item : items) all += item;
  return all + 'u';
}

inline std::string call(std::string_view module, std::string_view name, const std::string& arguments) {
  return global(module, name) + arguments + 'R';
}

inline std::string storage(std::string_view type, std::string_view key, std::uint64_t elements,
                           std::string_view module = "torch") {
  return tuple({text("storage"), global(module, type), text(key), text("cpu"), integer(elements)}) + 'Q';
}

inline std::string hooks() { return call("collections", "OrderedDict", ")"); }

inline std::string tensor(const std::string& storage, std::uint64_t first, const std::vector<std::uint64_t>& shape,
                          const std::vector<std::uint64_t>& strides, const std::string& more = {}) {
  return call("torch._utils", "_rebuild_tensor_v2",
              tuple({storage, integer(first), counts(shape), counts(strides), "\x89", hooks(), more}));
}

inline std::string pickle(const std::string& value) { return "\x80\x02" + value + '.'; }

}  // namespace onecopy::tests::opcodes
