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

}  // namespace onecopy
