// Files as std streams, with the errors of this project: what goes wrong is thrown where it happens, as an OsError.
//
// The returned streams own their files. Threads: any.
#pragma once

#include <cstdint>
#include <filesystem>
#include <istream>
#include <memory>
#include <ostream>
#include <streambuf>

namespace onecopy::streams {

// A regular file, opened once and read with ordinary reads: a file that is truncated meanwhile is DataLost, not SIGBUS.
class FileInput : public std::istream {
 public:
  explicit FileInput(const std::filesystem::path& path);
  FileInput(const FileInput&) = delete;
  FileInput& operator=(const FileInput&) = delete;
  ~FileInput() override;

 private:
  std::unique_ptr<std::streambuf> buffer_;
};

// A new file of `size` bytes that replaces the target in commit(); before that the target is unchanged.
class FileOutput : public std::ostream {
 public:
  FileOutput(const std::filesystem::path& path, std::uint64_t size);
  FileOutput(const FileOutput&) = delete;
  FileOutput& operator=(const FileOutput&) = delete;
  ~FileOutput() override;

  void commit();

 private:
  class Buffer;
  std::unique_ptr<Buffer> buffer_;
};

// Discards all output.
class NullOutput : public std::ostream {
 public:
  NullOutput();
  NullOutput(const NullOutput&) = delete;
  NullOutput& operator=(const NullOutput&) = delete;
  ~NullOutput() override;

 private:
  std::unique_ptr<std::streambuf> buffer_;
};

}  // namespace onecopy::streams
