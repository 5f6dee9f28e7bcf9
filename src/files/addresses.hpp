// Reserved addresses; whatever is mapped into them is unmapped with them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "os/os.hpp"

namespace onecopy {

class Addresses {
 public:
  Addresses() = default;
  Addresses(Addresses&& other) noexcept
      : at_(std::exchange(other.at_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  Addresses& operator=(Addresses&& other) noexcept {
    std::swap(at_, other.at_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~Addresses() { os::unmap(at_, size_); }

  // `size` bytes, whole pages, that begin at the place of `file_offset` within 2 MiB, so that the kernel can use 2 MiB
  // pages. They read as zeros.
  static os::Result<Addresses> reserve(std::size_t size, std::uint64_t file_offset) noexcept;

  std::byte* at() const noexcept { return at_; }
  // They stay reserved until the process ends: threads that cannot be ended may write to them.
  void leave() noexcept { size_ = 0; }

 private:
  Addresses(std::byte* at, std::size_t size) noexcept : at_(at), size_(size) {}

  std::byte* at_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace onecopy
