// Numbers in text: in the kernel's files, in names and in checksums.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace onecopy {

// The decimal number that follows the first `label` in `text` and any blanks; none if label or number are missing.
std::optional<std::uint64_t> number_after(std::string_view text, std::string_view label);

// Eight lowercase hexadecimal digits.
std::string hexadecimal(std::uint32_t number);

}  // namespace onecopy
