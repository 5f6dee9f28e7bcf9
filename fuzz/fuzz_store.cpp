// Any bytes as the description of an artefact: refused with a FormatError, or read, and then what was read is written
// and read again as the same.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "onecopy/base/error.hpp"
#include "store/about.hpp"

namespace {

std::optional<onecopy::store::About> parse(std::string_view text) {
  try {
    return onecopy::store::parse_about(text);
  } catch (const onecopy::FormatError&) {
    return std::nullopt;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto about = parse({reinterpret_cast<const char*>(data), size});
  if (about && onecopy::store::parse_about(onecopy::store::to_text(*about)) != *about) std::abort();
  return 0;
}
