// The list of mappings that the signal handler looks into.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "onecopy/files/guard.hpp"

namespace onecopy {

// What the handler must know about a mapping, as long as this object lives.
struct GuardedPages {
  std::byte* first = nullptr;
  std::size_t size = 0;  // whole pages
  int fd = -1;
  std::uint64_t file_offset = 0;  // of `first`
  std::uint64_t file_end = 0;     // the file must not end before it
  bool writable = false;
};

class Guarded {
 public:
  Guarded(const GuardedPages& pages, const std::string& path);
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;
  ~Guarded();

  std::optional<Loss> loss() const noexcept;

  struct Slot;

 private:
  Slot* slot_;
};

// Throws DataLost.
[[noreturn]] void fail_of_loss(const std::string& path, const Loss& loss);

}  // namespace onecopy
