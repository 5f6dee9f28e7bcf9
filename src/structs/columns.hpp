// A value decomposed into the arrays of a file.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "onecopy/base/bytes.hpp"
#include "onecopy/formats/layout.hpp"
#include "onecopy/structs/type.hpp"

namespace onecopy::structs {

using ByteSink = std::function<void(Bytes)>;

// One array, not yet contiguous in memory: `write` passes its bytes on, piece by piece. Refers to the value.
struct Column {
  ArraySpec spec;
  std::string field;  // the path of the leaf that it belongs to
  std::uint64_t bytes = 0;
  std::size_t alignment = 1;
  std::function<void(const ByteSink& sink)> write;
};

// The arrays that are one number or a few come first: one read of the file finds them together.
std::vector<Column> columns_of(const Type& type, const void* value);

}  // namespace onecopy::structs
