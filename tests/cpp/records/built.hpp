// Rows built, saved, verified and opened again; the words of the tests.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "naive_reader.hpp"
#include "onecopy/arrays/verify.hpp"
#include "onecopy/records/builder.hpp"
#include "scratch_folder.hpp"

namespace onecopy::testing {

inline NaiveReader built(const std::function<void(records::Column&)>& append, std::string container = "list") {
  const testing::ScratchFolder folder;
  records::Builder builder({.spool = folder.path(), .container = std::move(container), .metadata = {}});
  append(builder.rows());
  builder.save(folder / "rows");
  auto file = ArrayFile::open(folder / "rows");
  verify(file);
  return NaiveReader(std::move(file));
}

inline std::string rows_of(const std::function<void(records::Column&)>& append) { return built(append).rows(); }

inline DType dtype_of(const NaiveReader& reader, const std::string& tensor) {
  return reader.file().entry(tensor).dtype;
}

inline std::size_t tensors_of(const NaiveReader& reader) {
  const Index& index = reader.file().index();
  return static_cast<std::size_t>(
      std::ranges::count_if(index.entries(), [&](const Entry& entry) { return !index.is_filler(entry); }));
}

inline Bytes bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

inline void append_list(records::Column& column, const std::vector<std::int64_t>& items) {
  auto& list = column.list();
  for (const auto item : items) list.items().integer(item);
  list.end();
}

}  // namespace onecopy::testing
