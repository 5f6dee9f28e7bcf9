// Decimal text as numbers, exactly as Python's int() and float() have them.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace onecopy::records {

// Of a real number as JSON writes it: the nearest one; infinity where it is too large for any.
double real_of(std::string_view number) noexcept;

// Of digits, with a sign or none: two's complement, little endian, as few bytes as it takes. Takes the square of their
// number as time.
std::vector<std::byte> twos_complement_of(std::string_view digits);

}  // namespace onecopy::records
