#include "onecopy/base/error.hpp"

#include <system_error>
#include <utility>

namespace onecopy {
namespace {

std::string sentence(const std::string& operation, const std::string& path, const std::string& reason) {
  return operation + " '" + path + "': " + reason;
}

std::string reason_of(int code, std::string detail) {
  // std::generic_category is thread safe where strerror is not.
  return detail.empty() ? std::generic_category().message(code) : std::move(detail);
}

}  // namespace

OsError::OsError(std::string operation, std::string path, int code, std::string detail)
    : std::runtime_error(sentence(operation, path, reason_of(code, detail))),
      operation_(std::move(operation)),
      path_(std::move(path)),
      reason_(reason_of(code, std::move(detail))),
      code_(code) {}

FormatError::FormatError(Kind kind, const std::string& message, std::optional<std::uint64_t> offset)
    : std::runtime_error(message), offset_(offset), kind_(kind) {}

FormatError::FormatError(Kind kind, const std::string& message, std::optional<std::uint64_t> offset, std::string found)
    : std::runtime_error(message), found_(std::move(found)), offset_(offset), kind_(kind) {}

void MessagePart::append_to(std::string& message) const {
  switch (kind_) {
    case Kind::text: message += text_; break;
    case Kind::number: message += std::to_string(number_); break;
    case Kind::with_sign: message += std::to_string(static_cast<std::int64_t>(number_)); break;
  }
}

std::string concat(std::initializer_list<MessagePart> parts) {
  std::string message;
  for (const MessagePart& part : parts) part.append_to(message);
  return message;
}

void reject(FormatError::Kind kind, std::initializer_list<MessagePart> parts) {
  throw FormatError(kind, concat(parts));
}

FormatError FormatError::with_path(std::string path) const {
  FormatError error(kind_, std::move(path), what(), offset_);
  error.found_ = found_;
  return error;
}

FormatError FormatError::moved_by(std::uint64_t begin) const {
  auto moved = *this;
  if (moved.offset_) *moved.offset_ += begin;
  return moved;
}

std::string_view to_string(FormatError::Kind kind) noexcept {
  switch (kind) {
    case FormatError::not_this_format: return "not_this_format";
    case FormatError::unsupported: return "unsupported";
    case FormatError::truncated: return "truncated";
    case FormatError::out_of_bounds: return "out_of_bounds";
    case FormatError::inconsistent: return "inconsistent";
    case FormatError::too_costly: return "too_costly";
    case FormatError::malformed: break;
  }
  return "malformed";
}

}  // namespace onecopy
