// Errors carry facts, in two families: the system refused (`OsError`), or the bytes are wrong (`FormatError`).
//
// An `OsError` calls for a change of the machine, a `FormatError` for a change of the file; both messages contain the
// path and the reason. `DataLost` and `FileChanged` are `OsError`s: the file was correct when it was opened.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
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

// The bytes are wrong, or a value cannot be stored in the format. The message says what was expected, what was found
// and where; `kind`, `path`, `offset` and `found` are for programs.
class FormatError : public std::runtime_error {
 public:
  // Not an enum class: FormatError::truncated is a kind.
  enum Kind : std::uint8_t {
    not_this_format,  // a file of another format, or of other contents than the caller asked for
    unsupported,      // a version, encoding or type that this library does not read, or that the format cannot hold
    truncated,        // the data ends before what it declares
    out_of_bounds,    // an offset, a size or a number points outside the data
    malformed,        // the bytes break a rule of the format, such as its grammar
    inconsistent,     // two parts contradict each other: a name that occurs twice, overlaps, a checksum
    too_costly,       // beyond a limit that keeps a small file from taking much memory or time
  };

  // `offset`: where in the file the error is, in bytes; empty: unknown. `found`: see below. Not inline: there are
  // hundreds of calls.
  FormatError(Kind kind, const std::string& message, std::optional<std::uint64_t> offset = {});
  FormatError(Kind kind, const std::string& message, std::optional<std::uint64_t> offset, std::string found);

  // The same error for a file; the path is put before the message.
  FormatError with_path(std::string path) const;
  // The same error for data that begins at byte `begin` of the file.
  FormatError moved_by(std::uint64_t begin) const;

  Kind kind() const noexcept { return kind_; }
  const std::string& path() const noexcept { return path_; }  // empty: unknown
  std::optional<std::uint64_t> offset() const noexcept { return offset_; }
  // What the file is instead, in a few words ("PNG image"); empty: unknown.
  const std::string& found() const noexcept { return found_; }

 protected:
  FormatError(Kind kind, std::string path, const std::string& message, std::optional<std::uint64_t> offset)
      : std::runtime_error(path + ": " + message), path_(std::move(path)), offset_(offset), kind_(kind) {}

 private:
  std::string path_;
  std::string found_;
  std::optional<std::uint64_t> offset_;
  Kind kind_;
};

std::string_view to_string(FormatError::Kind kind) noexcept;  // "truncated"

// A part of a message: a text, which must outlive it, or a number. Not a template, so that hundreds of calls stay
// small.
class MessagePart {
 public:
  MessagePart(const char* text) : text_(text) {}                // NOLINT(google-explicit-constructor)
  MessagePart(std::string_view text) : text_(text) {}           // NOLINT(google-explicit-constructor)
  MessagePart(const std::string& text) : text_(text) {}         // NOLINT(google-explicit-constructor)
  MessagePart(const char& character) : text_(&character, 1) {}  // NOLINT(google-explicit-constructor)
  template <std::integral Number>
  MessagePart(Number number)  // NOLINT(google-explicit-constructor)
      : number_(static_cast<std::uint64_t>(number)), kind_(std::is_signed_v<Number> ? Kind::with_sign : Kind::number) {}

  void append_to(std::string& message) const;

 private:
  enum class Kind : std::uint8_t { text, number, with_sign };

  std::string_view text_;
  std::uint64_t number_ = 0;
  Kind kind_ = Kind::text;
};

// The parts one after the other, numbers as decimals: for messages.
std::string concat(std::initializer_list<MessagePart> parts);

template <class... Parts>
std::string concat(const Parts&... parts) {
  return concat({MessagePart(parts)...});
}

// Throws a FormatError with the message concat(parts...).
[[noreturn]] void reject(FormatError::Kind kind, std::initializer_list<MessagePart> parts);

template <class... Parts>
[[noreturn]] void reject(FormatError::Kind kind, const Parts&... parts) {
  reject(kind, {MessagePart(parts)...});
}

// There is nothing to verify against: the file carries no checksums, or only checksums that cannot be trusted.
class NoChecksum : public FormatError {
 public:
  NoChecksum(std::string path, const std::string& message) : FormatError(unsupported, std::move(path), message, {}) {}
};

}  // namespace onecopy
