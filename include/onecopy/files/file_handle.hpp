// A file that stays open, even if its path leads to a different file by now.
//
// It owns the descriptor, and closes it when it is destroyed. Threads: any.
#pragma once

namespace onecopy {

class FileHandle {
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
