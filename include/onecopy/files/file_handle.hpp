// A file that is held open, whatever its path leads to meanwhile.
#pragma once

#include <memory>

namespace onecopy {

class FileHandle : public std::enable_shared_from_this<FileHandle> {  // for Python's references: see Inspector
 public:
  explicit FileHandle(int descriptor) noexcept : descriptor_(descriptor) {}  // which becomes its own
  FileHandle(const FileHandle&) = delete;
  FileHandle& operator=(const FileHandle&) = delete;
  ~FileHandle();

  int descriptor() const noexcept { return descriptor_; }

 private:
  int descriptor_;
};

}  // namespace onecopy
