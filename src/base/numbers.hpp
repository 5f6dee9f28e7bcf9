// Numbers in text: of the kernel's files, and in names and checksums.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace onecopy {

// The decimal number behind the first `label` in `text`, and behind blanks; none where there is no label or no number.
std::optional<std::uint64_t> number_after(std::string_view text, std::string_view label);

// Eight lowercase hexadecimal digits.
std::string hexadecimal(std::uint32_t number);

}  // namespace onecopy
