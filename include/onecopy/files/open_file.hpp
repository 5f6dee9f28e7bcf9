// A file that is held open, whatever its path leads to meanwhile.
#pragma once

namespace onecopy {

class OpenFile {
 public:
  explicit OpenFile(int descriptor) noexcept : descriptor_(descriptor) {}  // which becomes its own
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  ~OpenFile();

  int descriptor() const noexcept { return descriptor_; }

 private:
  int descriptor_;
};

}  // namespace onecopy
