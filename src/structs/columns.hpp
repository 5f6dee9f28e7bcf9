// A value taken apart into the arrays that a file holds.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "onecopy/base/bytes.hpp"
#include "onecopy/formats/layout.hpp"
#include "onecopy/structs/type.hpp"

namespace onecopy::structs {

using Put = std::function<void(Bytes)>;

// One array, not yet in memory as such: `write` hands its bytes over, piece by piece. Looks into the value.
struct Column {
  ArraySpec spec;
  std::string field;  // the path of the leaf that it belongs to
  std::uint64_t bytes = 0;
  std::size_t alignment = 1;
  std::function<void(const Put& put)> write;
};

// The arrays that are one number or a few come first: one read of the file finds them together.
std::vector<Column> columns_of(const Type& type, const void* value);

}  // namespace onecopy::structs
