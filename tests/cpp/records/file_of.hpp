// A records file of what is appended, as it is read.
#pragma once

#include <functional>
#include <string>
#include <utility>

#include "onecopy/records/builder.hpp"
#include "onecopy/records/record_file.hpp"
#include "scratch_folder.hpp"

namespace onecopy::testing {

inline records::RecordFile file_of(const std::function<void(records::Column&)>& append,
                                   std::string container = "list") {
  const ScratchFolder folder;
  records::Builder builder({.spool = folder.path(), .container = std::move(container), .metadata = {}});
  append(builder.rows());
  builder.save(folder / "rows");
  return records::RecordFile::open(folder / "rows");  // the mapping outlives the path
}

}  // namespace onecopy::testing
