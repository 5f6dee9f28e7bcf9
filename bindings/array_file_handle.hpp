// An ArrayFile for Python: it can be closed while views of it live on.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>

#include "bindings.hpp"
#include "onecopy/arrays/array_file.hpp"
#include "onecopy/files/file_handle.hpp"

namespace onecopy::bindings {

// The index beside a mapping that can be closed.
class ArrayFileHandle {
 public:
  explicit ArrayFileHandle(const std::shared_ptr<const ArrayFile>& file)
      : file_(file), mapping_(Shared<const Mapping>(file->mapping())) {}

  Pin<const ArrayFile> pin() const { return file_.pin(); }
  // Throws DataLost too.
  Pin<const Index> index() const {
    const auto file = pin();
    expect_whole(*file->mapping());
    return file.part(&file->index());
  }
  const MappingHandle& mapping() const { return mapping_; }

  // The mapping is destroyed with the last view.
  void close() {
    mapping_.close();
    file_.close([](const ArrayFile& file) { return file.mapping()->path(); });
  }

 private:
  Shared<const ArrayFile> file_;
  MappingHandle mapping_;
};

// Opens a file by its path, or by its open `handle`, without the GIL. Throws FileChanged if its identity is not the
// expected one.
std::shared_ptr<const ArrayFile> open_file(const std::filesystem::path& path, const MappingOptions& options,
                                           const std::optional<IdentityTuple>& expected,
                                           const std::optional<Shared<const FileHandle>>& handle,
                                           ShardIndex index = ShardIndex::refuse);

}  // namespace onecopy::bindings
