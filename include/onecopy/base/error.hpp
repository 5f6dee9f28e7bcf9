// Errors carry facts, in two families: the system refused (`OsError`), or the bytes are wrong (`FormatError`).
//
// An `OsError` calls for a change of the machine, a `FormatError` for a change of the file; both messages contain the
// path and the reason. `DataLost` and `FileChanged` are `OsError`s: the file was correct when it was opened.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

namespace onecopy {

// The operating system refused a call. `operation` is what was attempted ("open", "map", "read"), `code` an errno
// value. Python raises the built-in class of that errno: FileNotFoundError, PermissionError, IsADirectoryError, ...
class OsError : public std::runtime_error {
 public:
  // `detail` replaces the text of `code` (strerror) where it can be more precise; empty: the text of `code`.
  OsError(std::string operation, std::string path, int code, std::string detail = {});

  const std::string& operation() const noexcept { return operation_; }
  const std::string& path() const noexcept { return path_; }
  const std::string& reason() const noexcept { return reason_; }
  int code() const noexcept { return code_; }

 private:
  std::string operation_;
  std::string path_;
  std::string reason_;
  int code_;
};

// The file lost bytes while it was mapped: it was truncated, or the device failed. `offset`: position in the file, if
// known.
class DataLost : public OsError {
 public:
  DataLost(std::string operation, std::string path, int code, std::string detail,
           std::optional<std::uint64_t> offset = {})
      : OsError(std::move(operation), std::move(path), code, std::move(detail)), offset_(offset) {}

  std::optional<std::uint64_t> offset() const noexcept { return offset_; }

 private:
  std::optional<std::uint64_t> offset_;
};

// The path leads to a different file than the one that was opened or pickled.
class FileChanged : public OsError {
 public:
  using OsError::OsError;
};

// The bytes are wrong. The message says what was expected, what was found and where; `with_path` adds the file.
class FormatError : public std::runtime_error {
 public:
  explicit FormatError(const std::string& message) : std::runtime_error(message) {}

  FormatError with_path(const std::string& path) const { return FormatError(path + ": " + what()); }
};

// There is nothing to verify against: the file carries no checksums, or only checksums that cannot be trusted.
class NoChecksum : public FormatError {
 public:
  using FormatError::FormatError;
};

}  // namespace onecopy
