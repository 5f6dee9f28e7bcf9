// Data that does not fit in memory while something is being built: appended in pieces, and read back in any order.
//
// The file has no name, so nothing must be cleaned up, and it is created after `held` bytes. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "onecopy/base/bytes.hpp"
#include "os/os.hpp"

namespace onecopy {

class Spool {
 public:
  static constexpr std::size_t held = std::size_t{1} << 20U;  // bytes: the last ones, which are written together

  // Without a folder it is in memory.
  explicit Spool(const std::filesystem::path& folder) : folder_(folder.string()) {}

  // Returns where they are. Throws OsError with the folder: no such folder, no permission, no space or memory.
  std::uint64_t append(Bytes bytes);

  // Throws OsError. The bytes were appended before.
  void read(std::uint64_t offset, std::span<std::byte> into) const;

  std::uint64_t size() const noexcept { return written_ + tail_.size(); }

 private:
  void write(Bytes bytes);
  [[noreturn]] void fail(const char* operation, int error) const;

  std::string folder_;
  os::Fd fd_;
  std::uint64_t written_ = 0;    // bytes in the file
  std::vector<std::byte> tail_;  // those behind them
};

}  // namespace onecopy
