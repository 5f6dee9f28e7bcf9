// An ArrayFile for Python: it can be closed while views of it live on.
#pragma once

#include <optional>
#include <string_view>
#include <utility>

#include "bindings.hpp"
#include "onecopy/arrays/array_file.hpp"

namespace onecopy::bindings {

// The index beside a mapping that can be closed.
class ArrayFileHandle {
 public:
  explicit ArrayFileHandle(ArrayFile file) : file_(std::move(file)), mapping_(file_->mapping()) {}

  const Index& index() const {
    expect_whole(*mapping_.get());  // closed: an error, too
    return file().index();
  }
  const MappingHandle& mapping() const { return mapping_; }
  const ArrayFile& file() const {
    (void)mapping_.get();
    return *file_;  // NOLINT(bugprone-unchecked-optional-access): there as long as the mapping
  }

  // The mapping is destroyed with the last view.
  void close() noexcept {
    mapping_.close();
    file_.reset();
  }

  // Null for fillers too: hidden entries are hidden everywhere.
  const Entry* find(std::string_view name) const {
    const Entry* entry = index().find(name);
    return entry == nullptr || index().is_filler(*entry) ? nullptr : entry;
  }

 private:
  std::optional<ArrayFile> file_;
  MappingHandle mapping_;
};

}  // namespace onecopy::bindings
