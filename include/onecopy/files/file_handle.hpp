// A file that is held open, even when its path leads to a different file by now.
#pragma once

#include <memory>

namespace onecopy {

class FileHandle : public std::enable_shared_from_this<FileHandle> {  // for Python's references: see Inspector
 public:
  explicit FileHandle(int descriptor) noexcept : descriptor_(descriptor) {}  // takes ownership
  FileHandle(const FileHandle&) = delete;
  FileHandle& operator=(const FileHandle&) = delete;
  ~FileHandle();

  int descriptor() const noexcept { return descriptor_; }

 private:
  int descriptor_;
};

}  // namespace onecopy
