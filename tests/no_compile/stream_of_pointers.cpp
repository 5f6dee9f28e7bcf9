// error: a pointer cannot be saved
#include <cstdint>
#include <filesystem>
#include <vector>

#include "onecopy/structs/streams.hpp"

#ifdef MUST_NOT_COMPILE
std::size_t write(const std::vector<int*>& value) { return onecopy::streams::save(value, "file"); }
#else
std::size_t write(const std::vector<int>& value) { return onecopy::streams::save(value, "file"); }
#endif
