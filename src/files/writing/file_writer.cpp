#include "onecopy/files/file_writer.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/rounding.hpp"
#include "files/writing/stage.hpp"
#include "onecopy/base/error.hpp"

namespace onecopy {

FileWriter::State::State(std::uint64_t announced) : size(announced) {
  held_.reserve(std::min<std::uint64_t>(announced, page_size));
}

void FileWriter::State::write(Bytes bytes) {
  while (!bytes.empty()) {
    const bool direct = held_.empty() && bytes.size() >= page_size;
    const std::size_t step = direct ? std::min(piece_size, round_down(bytes.size(), page_size))
                                    : std::min(page_size - held_.size(), bytes.size());
    const auto part = bytes.first(step);
    if (direct) {
      append(part, passed_);
      passed_ += step;
    } else {
      held_.insert(held_.end(), part.begin(), part.end());
      if (held_.size() == page_size) flush();
    }
    bytes = bytes.subspan(step);
  }
}

void FileWriter::State::flush() {
  if (held_.empty()) return;
  append(held_, passed_);
  passed_ += held_.size();
  held_.clear();
}

void FileWriter::State::overwrite(std::uint64_t offset, Bytes bytes) {
  if (!in_bounds(written(), offset, bytes.size()))
    fail("overwrite", EINVAL, "the range is beyond the bytes written so far");
  const std::uint64_t first = offset < passed_ ? std::min<std::uint64_t>(bytes.size(), passed_ - offset) : 0;
  if (first != 0) put(bytes.first(first), offset);
  const std::uint64_t into_held = offset < passed_ ? 0 : offset - passed_;
  std::ranges::copy(bytes.subspan(first), held_.begin() + static_cast<std::ptrdiff_t>(into_held));
}

void FileWriter::State::commit() {
  flush();
  if (written() != size) fail("save", EINVAL, concat(size, " bytes were announced, but ", written(), " were written"));
  finish();
}

FileWriter::FileWriter(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}
FileWriter::FileWriter(FileWriter&&) noexcept = default;
FileWriter& FileWriter::operator=(FileWriter&&) noexcept = default;
FileWriter::~FileWriter() = default;

void FileWriter::write(Bytes bytes) { state_->write(bytes); }
void FileWriter::overwrite(std::uint64_t offset, Bytes bytes) { state_->overwrite(offset, bytes); }
std::uint64_t FileWriter::written() const noexcept { return state_->written(); }
void FileWriter::commit() { state_->commit(); }

}  // namespace onecopy
