// A node in Arrow's terms: format, buffers and children, from which both structs of an export are made.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "onecopy/records/node.hpp"

namespace onecopy::records {

struct ArrowForm {
  std::string name;
  std::string format;
  std::string extension;  // the name of its type, for metadata; empty: none
  bool nullable = false;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  std::vector<const void*> buffers;  // the first is the validity, where the format has one
  std::vector<ArrowForm> children;
};

// Values [start, start + length).
ArrowForm arrow_form(const Node& node, std::string name, std::uint64_t start, std::uint64_t length);

}  // namespace onecopy::records
