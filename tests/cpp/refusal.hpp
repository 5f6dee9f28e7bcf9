// What a parser says about wrong bytes, as tests compare it: the kind and the place of the error, and not its words.
#pragma once

#include <string>

#include "onecopy/base/error.hpp"

namespace onecopy::testing {

// "truncated at 12", "malformed" where the place is unknown, or "accepted".
template <class Call>
std::string refusal(const Call& call) {
  try {
    (void)call();
  } catch (const FormatError& error) {
    const auto offset = error.offset();
    return std::string(to_string(error.kind())) + (offset ? " at " + std::to_string(*offset) : "");
  }
  return "accepted";
}

}  // namespace onecopy::testing
