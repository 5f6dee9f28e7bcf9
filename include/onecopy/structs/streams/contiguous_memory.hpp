// Loading into one piece of private memory, in the order of the stream: neighbours stay neighbours, and a thousand
// sequences are one allocation. Threads: one at a time; the loaded sequences share ownership of the memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <istream>
#include <memory>
#include <string>
#include <utility>

#include "onecopy/structs/streams/block.hpp"
#include "onecopy/structs/streams/file_streams.hpp"
#include "onecopy/structs/streams/loader.hpp"

namespace onecopy::streams {

// The block lives as long as this object, or a span or vector in it; so it may be a member of what it loads. In it are
// OwningSpans, and vectors with an allocator<T>; other vectors have their own memory, and the report counts them.
class contiguous_memory_allocator {
 public:
  // Returns the position in the stream behind the value.
  template <class T>
  std::size_t allocate(T& value, const std::filesystem::path& path) {
    FileInput file(path);
    return allocate(value, file, path.string());
  }

  template <class T>
  std::size_t allocate(T& value, std::istream& stream, std::string name = "stream") {
    generic_loader loader(stream, std::move(name));
    // A sequence needs its own size and at most alignof - 1 more. It follows its count, which needs no place, so that
    // the length of the stream is enough for types that are aligned to 8; others may not fit, and have their own.
    auto block = std::make_shared<Block>(loader.report().trailing.value_or(0));
    loader.set_block(block);
    loader.visit(value);
    block_ = std::move(block);
    report_ = loader.report();
    return loader.bytes();
  }

  std::uint8_t* begin() noexcept { return block_ ? reinterpret_cast<std::uint8_t*>(block_->begin()) : nullptr; }
  std::uint8_t* end() noexcept { return begin() + size(); }
  std::size_t size() const noexcept { return block_ ? block_->used() : 0; }
  const LoadReport& report() const noexcept { return report_; }

 private:
  std::shared_ptr<Block> block_;
  LoadReport report_;
};

}  // namespace onecopy::streams
