// Shared by writers of new files: writes begin and end at multiples of 2 MiB, so that the page cache can hold the file
// in its largest pages. A remainder is gathered; everything else is written straight from the caller's memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "onecopy/files/file_writer.hpp"

namespace onecopy {

class FileWriter::State {
 public:
  static constexpr std::size_t page_size = std::size_t{2} << 20U;
  static constexpr std::size_t piece_size = std::size_t{16} << 20U;  // at most, for one call of append()

  explicit State(std::uint64_t announced);
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  virtual ~State() = default;

  void write(Bytes bytes);
  void overwrite(std::uint64_t offset, Bytes bytes);
  void commit();
  std::uint64_t written() const noexcept { return passed_ + held_.size(); }

 protected:
  virtual void put(Bytes piece, std::uint64_t offset) = 0;  // into the file, anywhere; or throws
  virtual void append(Bytes piece, std::uint64_t offset) { put(piece, offset); }
  virtual void finish() = 0;  // everything is in the file
  [[noreturn]] virtual void fail(const char* operation, int error, std::string detail = {}) const = 0;

  const std::uint64_t size;

 private:
  void flush();

  std::uint64_t passed_ = 0;     // bytes in the file
  std::vector<std::byte> held_;  // less than a page
};

}  // namespace onecopy
