// One piece of private memory that the sequences of a loaded value share.
//
// Threads: one at a time while it is filled, any afterwards.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>
#include <vector>

namespace onecopy::streams {

// Parts are allocated from the front, and freed together. A page uses memory once it is written.
class Block {
  using Memory = std::byte[];  // NOLINT(modernize-avoid-c-arrays): a vector would write to all of it

 public:
  explicit Block(std::size_t size) : bytes_(std::make_unique_for_overwrite<Memory>(size)), size_(size) {}

  // `size` bytes on a multiple of `alignment`, or nullptr where the block is full.
  void* take(std::size_t size, std::size_t alignment) noexcept {
    void* at = bytes_.get() + used_;
    std::size_t room = size_ - used_;
    if (std::align(alignment, size, at, room) == nullptr) return nullptr;
    used_ = size_ - room + size;
    return at;
  }

  bool contains(const void* at) const noexcept {
    const std::less<> before;  // of any two addresses
    return !before(at, bytes_.get()) && before(at, bytes_.get() + size_);
  }

  std::byte* begin() noexcept { return bytes_.get(); }
  std::size_t used() const noexcept { return used_; }

 private:
  std::unique_ptr<Memory> bytes_;
  std::size_t size_;
  std::size_t used_ = 0;
};

// For vectors that a contiguous_memory_allocator places in its block: std::vector<T, allocator<T>>. It keeps the block
// alive. Vectors that do not fit, and those that are built, grown or copied, use the heap.
template <class T>
class allocator {
 public:
  using value_type = T;
  using propagate_on_container_move_assignment = std::true_type;
  using propagate_on_container_swap = std::true_type;

  allocator() noexcept = default;
  explicit allocator(std::shared_ptr<Block> block) noexcept : block_(std::move(block)) {}
  template <class Other>
  allocator(const allocator<Other>& other) noexcept : block_(other.block()) {}  // NOLINT(google-explicit-constructor)

  T* allocate(std::size_t count) {
    void* place = block_ && count <= SIZE_MAX / sizeof(T) ? block_->take(count * sizeof(T), alignof(T)) : nullptr;
    return place != nullptr ? static_cast<T*>(place) : std::allocator<T>().allocate(count);
  }

  void deallocate(T* items, std::size_t count) noexcept {
    if (!block_ || !block_->contains(items)) std::allocator<T>().deallocate(items, count);
  }

  allocator select_on_container_copy_construction() const noexcept { return {}; }
  const std::shared_ptr<Block>& block() const noexcept { return block_; }

  template <class Other>
  friend bool operator==(const allocator& a, const allocator<Other>& b) noexcept {
    return a.block() == b.block();
  }

 private:
  std::shared_ptr<Block> block_;
};

template <class T>
inline constexpr bool uses_block_v = false;
template <class T>
inline constexpr bool uses_block_v<std::vector<T, allocator<T>>> = true;

}  // namespace onecopy::streams
