// structs: C++ values saved once and opened in place. This is the type their sequences have.
//
// `OwningSpan<T>` is a read-only, contiguous sequence that hides the owner of its memory: a vector that was moved in, a
// mapping, or any other object.
//
//     OwningSpan<std::uint64_t> built = std::move(words);             // heap: the vector lives inside
//     OwningSpan<std::uint64_t> mapped(pointer, count, mapping);      // keeps `mapping` alive
//     OwningSpan<std::uint64_t> borrowed(pointer, count);             // the caller keeps the memory alive
//
// All three read the same pointer, without a branch (decision 0012). A copy shares the memory and its owner: it costs
// one atomic increment, or nothing where there is no owner. That is why the sequences inside an opened sequence borrow:
// a million of them have one owner, the outermost span, and need no counting.
//
// Threads: like std::shared_ptr; elements may be read by any number of threads.
#pragma once

#include <algorithm>
#include <compare>
#include <concepts>
#include <cstddef>
#include <memory>
#include <ranges>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "onecopy/base/bytes.hpp"

namespace onecopy {

// Sources of a sequence of T: a vector, a string, an array, another library's buffer.
template <class Range, class T>
concept ContiguousRangeOf = std::ranges::contiguous_range<Range> && std::ranges::sized_range<Range> &&
                            std::same_as<std::ranges::range_value_t<Range>, T>;

template <class T>
class OwningSpan {
  using Items = std::shared_ptr<const T[]>;  // NOLINT(modernize-avoid-c-arrays): aliases the owner, points to the first
  static_assert(std::is_object_v<T> && !std::is_const_v<T>,
                "OwningSpan<T> of an object type; elements are const anyway");

 public:
  using value_type = T;
  using element_type = const T;
  using size_type = std::size_t;
  using difference_type = std::ptrdiff_t;
  using pointer = const T*;
  using const_pointer = const T*;
  using reference = const T&;
  using const_reference = const T&;
  using iterator = const T*;
  using const_iterator = const T*;
  using reverse_iterator = std::reverse_iterator<iterator>;
  using const_reverse_iterator = reverse_iterator;

  OwningSpan() noexcept = default;
  OwningSpan(const OwningSpan&) noexcept = default;
  OwningSpan& operator=(const OwningSpan&) noexcept = default;
  // What was moved from is empty.
  OwningSpan(OwningSpan&& other) noexcept : items_(std::move(other.items_)), size_(std::exchange(other.size_, 0)) {}
  OwningSpan& operator=(OwningSpan&& other) noexcept {
    items_ = std::move(other.items_);
    size_ = std::exchange(other.size_, 0);
    return *this;
  }
  ~OwningSpan() = default;

  // Takes ownership of the range, without a copy of its elements. Implicit: `index.words = std::move(words);`.
  // Non-owning ranges (std::span) are refused, because moving one moves no elements.
  template <class Range>
    requires(!std::is_reference_v<Range> && !std::same_as<std::remove_const_t<Range>, OwningSpan> &&
             ContiguousRangeOf<Range, T> && !std::ranges::borrowed_range<Range>)
  OwningSpan(Range&& range) {  // NOLINT(google-explicit-constructor,bugprone-forwarding-reference-overload)
    if (std::ranges::empty(range)) return;
    auto owner = std::make_shared<std::remove_cvref_t<Range>>(std::forward<Range>(range));
    const T* begin = std::ranges::data(*owner);
    size_ = std::ranges::size(*owner);
    items_ = Items(std::move(owner), begin);
  }

  // Copies the elements: explicit, because it may be expensive.
  template <class Range>
    requires(!std::same_as<Range, OwningSpan> && ContiguousRangeOf<const Range&, T> && std::copy_constructible<T>)
  explicit OwningSpan(const Range& range)
      : OwningSpan(std::vector<T>(std::ranges::begin(range), std::ranges::end(range))) {}

  // Refers to `count` elements that `owner` keeps alive; without an owner the caller must.
  OwningSpan(const T* items, std::size_t count, std::shared_ptr<const void> owner = {}) noexcept
      : items_(std::move(owner), items), size_(count) {}

  const T* data() const noexcept { return items_.get(); }
  std::size_t size() const noexcept { return size_; }
  std::ptrdiff_t ssize() const noexcept { return static_cast<std::ptrdiff_t>(size_); }
  std::size_t size_bytes() const noexcept { return size_ * sizeof(T); }
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }

  const T& operator[](std::size_t i) const noexcept { return items_.get()[i]; }
  const T& front() const noexcept { return items_.get()[0]; }
  const T& back() const noexcept { return items_.get()[size_ - 1]; }
  const T& at(std::size_t i) const {  // throws std::out_of_range
    if (i >= size_)
      throw std::out_of_range("OwningSpan: element " + std::to_string(i) + " of " + std::to_string(size_));
    return items_.get()[i];
  }

  iterator begin() const noexcept { return items_.get(); }
  iterator end() const noexcept { return items_.get() + size_; }
  reverse_iterator rbegin() const noexcept { return reverse_iterator(end()); }
  reverse_iterator rend() const noexcept { return reverse_iterator(begin()); }

  // A view; valid as long as this span or one of its copies. (std::span takes any range, an OwningSpan too.)
  std::span<const T> span() const& noexcept ONECOPY_LIFETIMEBOUND { return {data(), size_}; }
  std::span<const T> span() const&& = delete;

  // A part that shares the owner. Throws std::out_of_range.
  OwningSpan subspan(std::size_t offset, std::size_t count) const {
    if (!in_bounds(size_, offset, count))
      throw std::out_of_range("OwningSpan: [" + std::to_string(offset) + ", +" + std::to_string(count) + ") of " +
                              std::to_string(size_));
    OwningSpan part;
    part.items_ = Items(items_, data() + offset);
    part.size_ = count;
    return part;
  }

  // False: another owner keeps the memory alive (or there is none).
  bool owns() const noexcept { return items_.use_count() != 0; }

  void swap(OwningSpan& other) noexcept {
    items_.swap(other.items_);
    std::swap(size_, other.size_);
  }
  friend void swap(OwningSpan& a, OwningSpan& b) noexcept { a.swap(b); }

  void clear() noexcept { OwningSpan().swap(*this); }

  // Compares elements, like std::vector.
  friend bool operator==(const OwningSpan& a, const OwningSpan& b)
    requires std::equality_comparable<T>
  {
    return std::ranges::equal(a, b);
  }
  friend auto operator<=>(const OwningSpan& a, const OwningSpan& b)
    requires std::three_way_comparable<T>
  {
    return std::lexicographical_compare_three_way(a.begin(), a.end(), b.begin(), b.end());
  }

 private:
  Items items_;
  std::size_t size_ = 0;
};

template <class T>
inline constexpr bool is_owning_span_v = false;
template <class T>
inline constexpr bool is_owning_span_v<OwningSpan<T>> = true;

}  // namespace onecopy
