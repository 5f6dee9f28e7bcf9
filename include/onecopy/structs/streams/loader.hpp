// Reading a stream, or viewing a mapped one. Every count is compared with the remaining bytes before it is used or
// memory is allocated for it: any bytes result in a value or an error.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <istream>
#include <memory>
#include <optional>
#include <ranges>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "onecopy/base/bytes.hpp"
#include "onecopy/base/error.hpp"
#include "onecopy/structs/classify.hpp"
#include "onecopy/structs/owning_span.hpp"
#include "onecopy/structs/streams/block.hpp"
#include "onecopy/structs/streams/file_streams.hpp"
#include "onecopy/structs/streams/wire_format.hpp"
#include "onecopy/structs/traits.hpp"

namespace onecopy::streams {

// The result of a load. Counts of bytes include only the elements of sequences of plain types.
struct LoadReport {
  std::uint64_t bytes = 0;       // the position in the stream behind the value
  std::uint64_t viewed = 0;      // bytes that lie in the mapping
  std::uint64_t placed = 0;      // bytes that lie in a contiguous_memory_allocator's block
  std::uint64_t copied = 0;      // bytes that lie in memory of their own
  std::uint64_t misaligned = 0;  // sequences that could not be viewed, because their address does not suit their type
  std::uint64_t vectors = 0;     // sequences that could not be viewed, because vectors and strings own their memory
  std::optional<std::uint64_t> trailing;  // bytes behind the value; empty: the length of the stream is unknown
};

// Throws FormatError with the offset of wrong bytes, and OsError if the system refuses. A field then has its previous
// value, the stream's, or (a truncated plain field) a mixture. One thread at a time.
class generic_loader {
 public:
  // `name` is for messages.
  explicit generic_loader(std::istream& stream, std::string name = "stream");

  // A stream in memory, kept alive by `owner`, or without one by the caller: OwningSpans become views.
  generic_loader(Bytes memory, std::shared_ptr<const void> owner, std::string name);

  // The mapped memory of a stream: byte i of the memory is byte i of the stream. Reading begins at the stream's
  // position, and after each outermost visit the stream is positioned behind the value.
  void set_mmap(const std::uint8_t* base, std::size_t size, std::shared_ptr<const void> owner = {});

  // OwningSpans, and vectors with an allocator<T>, are placed into the block until it is full.
  void set_block(std::shared_ptr<Block> block);

  template <class T>
  void visit(T& value, std::string_view /*name*/ = {}) {
    static_assert(!std::is_const_v<T>, "a const value cannot be loaded: is there a visit(visitor) that is not const?");
    const Level level(*this);
    WireFormat::visit(*this, value);
    if (depth_ == 1) leave();
  }

  std::size_t bytes();                      // the position in the stream
  std::size_t bytes_pods() const noexcept;  // of plain values and counts
  std::size_t bytes_vecs_of_pods() const noexcept;
  bool is_mmap() const noexcept { return memory_.data() != nullptr || stream_ == nullptr; }

  LoadReport report();

 private:
  friend struct WireFormat;

  // Limits the depth of recursion, which a file chooses (a tree of vectors of itself).
  static constexpr unsigned max_depth = 1000;

  struct Level {
    explicit Level(generic_loader& its) : loader(its) {
      loader.enter();
      ++loader.depth_;
    }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;
    ~Level() { --loader.depth_; }
    generic_loader& loader;
  };

  // Only the span of a sequence holds the owner; spans in its elements borrow, and need no reference counting.
  struct Borrowing {
    explicit Borrowing(std::shared_ptr<const void>& its) : owner(its), kept(std::exchange(its, nullptr)) {}
    Borrowing(const Borrowing&) = delete;
    Borrowing& operator=(const Borrowing&) = delete;
    ~Borrowing() { owner = std::move(kept); }
    std::shared_ptr<const void>& owner;
    std::shared_ptr<const void> kept;
  };

  template <class T>
  struct Kept {
    std::shared_ptr<const void> owner;  // of the memory that the elements refer to
    std::vector<T> elements;
  };

  template <class T>
  void plain(T& value) {
    if constexpr (std::same_as<T, bool>) {
      value = read_flag();
    } else {
      read(&value, sizeof(T));
      expect_bools(std::span(&value, 1));
    }
    plain_bytes_ += sizeof(T);
  }

  template <class Optional>
  void optional(Optional& value) {
    if (!read_flag()) return value.reset();
    typename Optional::value_type fresh{};
    visit(fresh);
    value = std::move(fresh);
  }

  template <class Sequence>
  void sequence(Sequence& value) {
    const std::uint64_t count = read_count();
    if constexpr (!is_pod_v<std::ranges::range_value_t<Sequence>>)
      nested(value, count);
    else if constexpr (is_owning_span_v<Sequence>)
      section(value, count);
    else
      vector(value, count);
  }

  template <class T>
  void nested(OwningSpan<T>& value, std::uint64_t count) {
    auto kept = std::make_shared<Kept<T>>(Kept<T>{owner_, {}});
    {
      const Borrowing borrowing(owner_);
      read_elements(kept->elements, count);
    }
    if (count == 0) return value.clear();
    const T* elements = kept->elements.data();
    value = OwningSpan<T>(elements, count, std::move(kept));
  }

  template <class Vector>
  void nested(Vector& value, std::uint64_t count) {
    Vector fresh(value.get_allocator());
    read_elements(fresh, count);
    value = std::move(fresh);
  }

  template <class T>
  void section(OwningSpan<T>& value, std::uint64_t count) {
    const bool is_known = expect_room(count, sizeof(T));
    if (count == 0) return value.clear();
    if (const T* items = view<T>(count)) {
      value = OwningSpan<T>(items, count, owner_);
    } else if (T* place = is_known ? place_for<T>(count) : nullptr) {
      read(place, count * sizeof(T));
      expect_bools(std::span(place, count));
      value = OwningSpan<T>(place, count, owner_);
    } else {
      std::vector<T> own;
      read_items(own, count, is_known ? count : believed / sizeof(T));
      report_.copied += count * sizeof(T);
      value = std::move(own);
    }
  }

  template <class Vector>
  void vector(Vector& value, std::uint64_t count) {
    using T = std::ranges::range_value_t<Vector>;
    Vector fresh(allocator_for(value));
    read_items(fresh, count, expect_room(count, sizeof(T)) ? count : believed / sizeof(T));
    const bool is_placed = block_ && block_->contains(fresh.data());
    (is_placed ? report_.placed : report_.copied) += count * sizeof(T);
    if (is_mmap() && count != 0) ++report_.vectors;
    value = std::move(fresh);
  }

  template <class Vector>
  auto allocator_for(const Vector& value) const {
    if constexpr (uses_block_v<Vector>)
      return typename Vector::allocator_type(block_);
    else
      return value.get_allocator();
  }

  // An address in the mapping; nullptr without a mapping, or if the address is misaligned for T.
  template <class T>
  const T* view(std::uint64_t count) {
    if (!is_mmap() || structs::has_bool<T>()) return nullptr;  // a bool in the file could change at any time
    const std::byte* at = memory_.data() + at_;
    if (reinterpret_cast<std::uintptr_t>(at) % alignof(T) != 0) {
      ++report_.misaligned;
      return nullptr;
    }
    at_ += count * sizeof(T);
    report_.viewed += count * sizeof(T);
    return reinterpret_cast<const T*>(at);
  }

  template <class T>
  T* place_for(std::uint64_t count) {
    void* place = block_ ? block_->take(count * sizeof(T), alignof(T)) : nullptr;
    if (place != nullptr) report_.placed += count * sizeof(T);
    return static_cast<T*>(place);
  }

  // In steps of so many items, so that a truncated stream ends before memory is exhausted.
  template <class Vector>
  void read_items(Vector& items, std::uint64_t count, std::uint64_t step) {
    constexpr std::uint64_t size = sizeof(std::ranges::range_value_t<Vector>);
    while (items.size() < count) {
      const std::size_t first = items.size();
      items.resize(std::min<std::uint64_t>(count, first + std::max<std::uint64_t>(1, step)));
      read(items.data() + first, (items.size() - first) * size);
      expect_bools(std::span(items).subspan(first));
    }
  }

  // Clears values with an invalid bool, which a program must not read.
  template <class T>
  void expect_bools(std::span<T> values) {
    if constexpr (structs::has_bool<T>()) {
      if (std::ranges::all_of(values, structs::has_valid_bools<T>)) return;
      std::memset(values.data(), 0, values.size_bytes());
      fail(where() - values.size_bytes(), "a bool in a plain struct is neither 0 nor 1");
    }
  }

  // Twice as many each time, so that a false count costs no more than what was read before it.
  template <class Vector>
  void read_elements(Vector& elements, std::uint64_t count) {
    while (elements.size() < count) {
      const std::size_t first = elements.size();
      const std::uint64_t before = at_;
      elements.resize(std::min<std::uint64_t>(count, std::max<std::uint64_t>(64, 2 * first)));
      for (std::size_t i = first; i < elements.size(); ++i) visit(elements[i]);
      if (at_ == before && elements.size() < count) fail_endless(count);
    }
  }

  void enter();  // an outermost visit, or one inside it
  void leave();
  void read(void* into, std::uint64_t size);
  void read_memory(void* into, std::uint64_t size);
  bool read_flag();
  std::uint64_t read_count();

  // Fails if fewer bytes are left; false if only reading can decide.
  bool expect_room(std::uint64_t count, std::uint64_t size);
  std::optional<std::uint64_t> left();
  std::uint64_t where();
  [[noreturn]] void fail(std::uint64_t offset, const std::string& what,
                         FormatError::Kind kind = FormatError::malformed) const;
  [[noreturn]] void fail_endless(std::uint64_t count);

  // The most memory that is allocated for a count before the stream has proved to be long enough, in bytes.
  static constexpr std::uint64_t believed = std::uint64_t{1} << 20U;

  std::istream* stream_ = nullptr;
  std::string name_;
  Bytes memory_;
  std::shared_ptr<const void> owner_;  // of the mapping or the block
  std::shared_ptr<Block> block_;
  std::uint64_t at_ = 0;  // in the memory; without it, bytes read from the stream
  unsigned depth_ = 0;
  std::uint64_t plain_bytes_ = 0;
  LoadReport report_;
};

// The loader of a file. It owns the stream.
class loader : public generic_loader {
 public:
  explicit loader(const std::filesystem::path& path) : generic_loader(file_, path.string()), file_(path) {}

 private:
  FileInput file_;
};

}  // namespace onecopy::streams
