#include "onecopy/structs/streams/saver.hpp"

#include <cerrno>
#include <system_error>
#include <utility>

#include "onecopy/base/error.hpp"

namespace onecopy::streams {
namespace {

namespace fs = std::filesystem;

// Writing into the old file would change it for processes that have it mapped, and truncating it would end them
// (SIGBUS).
fs::path give_up_name(const fs::path& path) {
  std::error_code ignored;  // a file that cannot be removed cannot be opened, and that is reported
  if (fs::is_regular_file(path, ignored)) fs::remove(fs::canonical(path, ignored), ignored);
  errno = 0;
  return path;
}

}  // namespace

generic_saver::generic_saver(std::ostream& stream, std::string name) : stream_(&stream), name_(std::move(name)) {}

generic_saver::generic_saver(std::ostream& stream, std::string name, Flushing /*flushing*/)
    : stream_(&stream), name_(std::move(name)), is_flushing_(true) {}

std::size_t generic_saver::bytes() {
  expect_good();
  const std::streamoff here = stream_->tellp();
  return here < 0 ? written_ : static_cast<std::uint64_t>(here);
}

void generic_saver::write(const void* from, std::size_t size) {
  errno = 0;
  stream_->write(static_cast<const char*>(from), static_cast<std::streamsize>(size));
  expect_good();
  written_ += size;
}

void generic_saver::leave() {
  if (!is_flushing_) return;
  errno = 0;
  stream_->flush();
  expect_good();
}

// The standard streams do not report the reason, but the failed call left its errno.
void generic_saver::expect_good() {
  if (!*stream_) throw OsError("write", name_, errno != 0 ? errno : EIO);
}

saver::saver(const std::filesystem::path& path)
    : generic_saver(file_, path.string(), Flushing{}), file_(give_up_name(path), std::ios::binary) {
  if (!file_) throw OsError("save", path.string(), errno != 0 ? errno : EIO);
}

}  // namespace onecopy::streams
