#include "onecopy/structs/streams/loader.hpp"

#include <cerrno>
#include <limits>

#include "onecopy/base/error.hpp"

namespace onecopy::streams {

generic_loader::generic_loader(std::istream& stream, std::string name) : stream_(&stream), name_(std::move(name)) {}

generic_loader::generic_loader(Bytes memory, std::shared_ptr<const void> owner, std::string name)
    : name_(std::move(name)), memory_(memory), owner_(std::move(owner)) {}

void generic_loader::set_mmap(const std::uint8_t* base, std::size_t size, std::shared_ptr<const void> owner) {
  memory_ = {reinterpret_cast<const std::byte*>(base), size};
  owner_ = std::move(owner);
}

void generic_loader::set_block(std::shared_ptr<Block> block) {
  owner_ = block;
  block_ = std::move(block);
}

std::size_t generic_loader::bytes() { return where(); }
std::size_t generic_loader::bytes_pods() const noexcept { return plain_bytes_; }
std::size_t generic_loader::bytes_vecs_of_pods() const noexcept {
  return report_.viewed + report_.placed + report_.copied;
}

LoadReport generic_loader::report() {
  LoadReport report = report_;
  report.bytes = where();
  report.trailing = left();
  return report;
}

void generic_loader::enter() {
  if (depth_ == max_depth)
    fail(where(), concat("values are nested more than ", max_depth, " deep"), FormatError::too_costly);
  if (depth_ != 0 || !is_mmap() || stream_ == nullptr) return;
  const std::streamoff here = stream_->tellg();
  if (here < 0) throw OsError("get the position in", name_, EIO);
  at_ = static_cast<std::uint64_t>(here);
  if (at_ > memory_.size())
    fail(at_, concat("the position is beyond the ", memory_.size(), " bytes of the mapping"), FormatError::truncated);
}

void generic_loader::leave() {
  if (!is_mmap() || stream_ == nullptr) return;
  if (!stream_->seekg(static_cast<std::streamoff>(at_))) throw OsError("seek in", name_, EIO);
}

void generic_loader::read(void* into, std::uint64_t size) {
  if (size == 0) return;
  if (is_mmap()) return read_memory(into, size);
  stream_->read(static_cast<char*>(into), static_cast<std::streamsize>(size));
  const auto done = static_cast<std::uint64_t>(stream_->gcount());
  at_ += done;
  if (stream_->bad()) throw OsError("read", name_, EIO);
  if (done != size)
    fail(where() - done, concat("expected ", size, " bytes, but ", done, " are left"), FormatError::truncated);
}

void generic_loader::read_memory(void* into, std::uint64_t size) {
  if (!in_bounds(memory_.size(), at_, size))
    fail(at_, concat("expected ", size, " bytes, but ", memory_.size() - at_, " are left"), FormatError::truncated);
  std::memcpy(into, memory_.data() + at_, size);
  at_ += size;
}

bool generic_loader::read_flag() {
  std::uint8_t flag = 0;
  read(&flag, 1);
  if (flag > 1) fail(where() - 1, "expected 0 or 1, found " + std::to_string(flag));
  return flag == 1;
}

std::uint64_t generic_loader::read_count() {
  std::uint64_t count = 0;
  plain(count);
  return count;
}

bool generic_loader::expect_room(std::uint64_t count, std::uint64_t size) {
  constexpr auto most = static_cast<std::uint64_t>(std::numeric_limits<std::ptrdiff_t>::max());
  // Querying a stream's length seeks in it: not for small reads.
  const bool is_small = !is_mmap() && count <= believed / size;
  const auto there = is_small ? std::nullopt : left();
  if (count > there.value_or(most) / size)
    fail(where(),
         concat(count, " elements of ", size, " bytes, but ",
                (there ? std::to_string(*there) + " bytes are left" : "they do not fit into memory")),
         there ? FormatError::truncated : FormatError::too_costly);
  return is_small || there;
}

std::optional<std::uint64_t> generic_loader::left() {
  if (is_mmap()) return memory_.size() - std::min<std::uint64_t>(where(), memory_.size());
  auto* buffer = stream_->rdbuf();
  if (buffer == nullptr) return std::nullopt;
  const std::streamoff here = buffer->pubseekoff(0, std::ios_base::cur, std::ios_base::in);
  if (here < 0) return std::nullopt;
  const std::streamoff end = buffer->pubseekoff(0, std::ios_base::end, std::ios_base::in);
  if (buffer->pubseekpos(here, std::ios_base::in) != std::streampos(here)) throw OsError("seek in", name_, EIO);
  if (end < here) return std::nullopt;  // a device
  return static_cast<std::uint64_t>(end - here);
}

std::uint64_t generic_loader::where() {
  const bool is_at = stream_ == nullptr || stream_->rdbuf() == nullptr || (is_mmap() && depth_ != 0);
  if (is_at) return at_;
  const std::streamoff here = stream_->rdbuf()->pubseekoff(0, std::ios_base::cur, std::ios_base::in);
  return here < 0 ? at_ : static_cast<std::uint64_t>(here);
}

void generic_loader::fail(std::uint64_t offset, const std::string& what, FormatError::Kind kind) const {
  throw FormatError(kind, concat("byte ", offset, ": ", what), offset).with_path(name_);
}

void generic_loader::fail_endless(std::uint64_t count) {
  fail(where(), std::to_string(count) + " elements that take no bytes are too many", FormatError::too_costly);
}

}  // namespace onecopy::streams
