// Decimal text as numbers, exactly as Python's int() and float() have them.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace onecopy::records {

// Parses a real number of JSON: the nearest double; infinity if it is too large.
double real_of(std::string_view number) noexcept;

// Parses digits with an optional sign: two's complement, little endian, as few bytes as possible. Quadratic time.
// number as time.
std::vector<std::byte> twos_complement_of(std::string_view digits);

}  // namespace onecopy::records
