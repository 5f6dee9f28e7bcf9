// A limit on the work of one parser, in bytes that it visits or keeps.
//
// Parts of a file may refer to the same bytes again and again, so a small file could keep a reader busy for hours. The
// limit is a multiple of the file's size, so that opening costs time and memory in proportion to it.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "onecopy/base/error.hpp"

namespace onecopy {

class WorkBudget {
 public:
  // `refusal` is the text of the FormatError when more than `bytes` are spent.
  WorkBudget(std::uint64_t bytes, std::string refusal) : left_(bytes), refusal_(std::move(refusal)) {}

  void spend(std::uint64_t bytes) {
    if (bytes > left_) reject(FormatError::too_costly, refusal_);
    left_ -= bytes;
  }

 private:
  std::uint64_t left_;
  std::string refusal_;
};

}  // namespace onecopy
