// error: a sequence of bool
#include <cstdint>
#include <vector>

#include "onecopy/structs/streams.hpp"

#ifdef MUST_NOT_COMPILE
std::size_t read(std::vector<bool>& value) { return onecopy::streams::load(value, "file"); }
#else
std::size_t read(std::vector<std::uint8_t>& value) { return onecopy::streams::load(value, "file"); }
#endif
