// Writing a stream. Every write is checked: a full disk is an OsError at the write that fails, not a short file.
//
// Threads: one at a time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <ostream>
#include <ranges>
#include <string>
#include <string_view>

#include "onecopy/structs/streams/wire_format.hpp"
#include "onecopy/structs/traits.hpp"

#if defined(__has_builtin)
#if __has_builtin(__builtin_clear_padding)
#define ONECOPY_CLEARS_PADDING
#endif
#endif

namespace onecopy::streams {

class generic_saver {
 public:
  // `name` is for messages. The stream's owner flushes it.
  explicit generic_saver(std::ostream& stream, std::string name = "stream");

  template <class T>
  void visit(const T& value, std::string_view /*name*/ = {}) {
    const Level level(depth_);
    WireFormat::visit(*this, value);
    if (depth_ == 1) leave();
  }

  std::size_t bytes();  // the position in the stream

 protected:
  // Flushes after each outermost visit, so that a failed write of buffered bytes is noticed then.
  struct Flushing {};
  generic_saver(std::ostream& stream, std::string name, Flushing flushing);

 private:
  friend struct WireFormat;

  struct Level {
    explicit Level(unsigned& its) noexcept : depth(++its) {}
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;
    ~Level() { --depth; }
    unsigned& depth;
  };

  template <class T>
  void plain(const T& value) {
    write_items(&value, 1);
  }

  template <class Optional>
  void optional(const Optional& value) {
    const std::uint8_t flag = value.has_value() ? 1 : 0;
    write(&flag, 1);
    if (value) visit(*value);
  }

  template <class Sequence>
  void sequence(const Sequence& value) {
    const std::uint64_t count = value.size();
    write(&count, sizeof(count));
    if constexpr (is_pod_v<std::ranges::range_value_t<Sequence>>) {
      write_items(value.data(), count);
    } else {
      for (const auto& element : value) visit(element);
    }
  }

  template <class T>
  void write_items(const T* items, std::size_t count) {
#ifdef ONECOPY_CLEARS_PADDING
    if constexpr (may_have_padding_v<T>) return write_cleared(items, count);
#endif
    if (count != 0) write(items, count * sizeof(T));
  }

#ifdef ONECOPY_CLEARS_PADDING
  // Padding holds previous contents of the memory, which must not get into a file.
  template <class T>
  void write_cleared(const T* items, std::size_t count) {
    constexpr std::size_t batch = std::max<std::size_t>(1, (std::size_t{64} << 10U) / sizeof(T));
    const auto cleared =
        std::make_unique_for_overwrite<T[]>(std::min(batch, count));  // NOLINT(modernize-avoid-c-arrays)
    for (std::size_t first = 0; first < count; first += batch) {
      const std::size_t part = std::min(batch, count - first);
      std::memcpy(cleared.get(), items + first, part * sizeof(T));
      for (std::size_t i = 0; i < part; ++i) __builtin_clear_padding(&cleared[i]);
      write(cleared.get(), part * sizeof(T));
    }
  }
#endif

  void write(const void* from, std::size_t size);
  void leave();
  void expect_good();

  std::ostream* stream_;
  std::string name_;
  bool is_flushing_ = false;
  unsigned depth_ = 0;
  std::uint64_t written_ = 0;
};

// The saver of a file. It owns the stream, and begins a new file: processes with the old one mapped keep it. A program
// that ends in between leaves an incomplete file; `save` does not.
class saver : public generic_saver {
 public:
  explicit saver(const std::filesystem::path& path);

 private:
  std::ofstream file_;
};

}  // namespace onecopy::streams
