#include "formats/wire/flatbuffer.hpp"

#include <utility>

#include "formats/wire/json.hpp"
#include "onecopy/base/error.hpp"

namespace onecopy::flatbuffer {
namespace {

constexpr unsigned offset_bytes = 4;
constexpr std::uint64_t root_bytes = 8;  // the way to the root table, and the identifier
constexpr unsigned vtable_head = 4;      // its size, and the table's
constexpr std::uint64_t table_cost = 8;  // its way to the vtable, and the offset that led to it

}  // namespace

std::string_view identifier(Bytes file) noexcept {
  if (file.size() < root_bytes) return {};
  const std::uint64_t root = little_endian(file.first(offset_bytes));
  if (root < root_bytes || root % offset_bytes != 0 || !in_bounds(file.size(), root, offset_bytes)) return {};
  return {reinterpret_cast<const char*>(file.data()) + offset_bytes, offset_bytes};
}

Buffer::Buffer(Bytes bytes)
    : bytes_(bytes),
      budget_(bytes.size() * times, "flatbuffer: repeated references to parts exceed, in total, " +
                                        std::to_string(times) + " times the " + std::to_string(bytes.size()) +
                                        " bytes") {}

std::uint64_t Buffer::number(std::uint64_t at, unsigned bytes) const {
  if (!in_bounds(bytes_.size(), at, bytes))
    fail(FormatError::truncated, at, "a number of ", bytes, " bytes is truncated");
  if (at % bytes != 0) fail(FormatError::malformed, at, "a number of ", bytes, " bytes is not aligned");
  return little_endian(bytes_.subspan(at, bytes));
}

// Where the offset at `at` leads: at or behind where it stands, and inside the buffer.
std::uint64_t Buffer::follow(std::uint64_t at) const {
  const std::uint64_t offset = number(at, offset_bytes);
  if (offset == 0) fail(FormatError::malformed, at, "an offset is zero");
  if (!in_bounds(bytes_.size(), at, offset))
    fail(FormatError::out_of_bounds, at, "an offset of ", offset, " points outside the ", bytes_.size(), " bytes");
  return at + offset;
}

Table Buffer::root() { return table_at(follow(0), 0); }

Table Buffer::table_at(std::uint64_t at, int depth) { return {*this, at, depth}; }

Buffer::Found Buffer::vector_at(std::uint64_t at, unsigned element) const {
  const auto count = number_at<std::uint32_t>(at);
  const std::uint64_t begin = at + offset_bytes;  // in bounds, as the count was
  if (!in_bounds(bytes_.size(), begin, std::uint64_t{count} * element))
    fail(FormatError::truncated, at, "a vector declares ", count, " elements of ", element, " bytes, but only ",
         bytes_.size() - begin, " bytes are left");
  if (count != 0 && begin % element != 0)
    fail(FormatError::malformed, at, "the elements of ", element, " bytes in a vector are not aligned");
  return {begin, count};
}

std::string_view Buffer::text_at(std::uint64_t at) {
  const Found found = vector_at(at, 1);
  const std::uint64_t end = found.begin + found.count;
  if (!in_bounds(bytes_.size(), end, 1) || bytes_[end] != std::byte{0})
    fail(FormatError::malformed, at, "a string is not terminated by a zero");
  spend(std::uint64_t{found.count} + offset_bytes);
  const std::string_view text(reinterpret_cast<const char*>(bytes_.data()) + found.begin, found.count);
  if (!json::is_utf8(text)) fail(FormatError::malformed, at, "a string is not UTF-8");
  return text;
}

Table Vector::table(std::uint32_t i) const {
  return buffer_->table_at(buffer_->follow(found_.begin + std::uint64_t{i} * offset_bytes), depth_ + 1);
}

std::string_view Vector::text(std::uint32_t i) const {
  return buffer_->text_at(buffer_->follow(found_.begin + std::uint64_t{i} * offset_bytes));
}

Table::Table(Buffer& buffer, std::uint64_t at, int depth) : buffer_(&buffer), at_(at), depth_(depth) {
  if (depth > deepest) Buffer::fail(FormatError::too_costly, at, "tables are nested more than ", deepest, " deep");
  buffer.spend(table_cost);
  const std::uint64_t size = buffer.bytes_.size();
  const std::int64_t back = buffer.number_at<std::int32_t>(at);  // to the vtable, which lies before or behind
  if (std::cmp_greater(back, at))
    Buffer::fail(FormatError::out_of_bounds, at, "the vtable of a table begins before the file");
  vtable_ = static_cast<std::uint64_t>(static_cast<std::int64_t>(at) - back);
  vtable_size_ = buffer.number_at<std::uint16_t>(vtable_);
  if (vtable_size_ < vtable_head || vtable_size_ % 2 != 0 || !in_bounds(size, vtable_, vtable_size_))
    Buffer::fail(FormatError::out_of_bounds, vtable_, "a vtable has the invalid size of ", vtable_size_, " bytes");
  size_ = buffer.number_at<std::uint16_t>(vtable_ + 2);
  if (size_ < offset_bytes || !in_bounds(size, at, size_))
    Buffer::fail(FormatError::out_of_bounds, at, "a table has the invalid size of ", size_, " bytes");
}

std::optional<std::uint64_t> Table::find(unsigned field, unsigned bytes) const {
  const unsigned slot = vtable_head + 2 * field;
  if (!in_bounds(vtable_size_, slot, 2)) return std::nullopt;
  const auto offset = buffer_->number_at<std::uint16_t>(vtable_ + slot);
  if (offset == 0) return std::nullopt;
  if (offset < offset_bytes || !in_bounds(size_, offset, bytes))
    Buffer::fail(FormatError::out_of_bounds, at_, "field ", field, " of ", bytes, " bytes at ", offset,
                 " is outside of its table, which has ", size_);
  return at_ + offset;
}

std::optional<Table> Table::table(unsigned field) const {
  const auto at = find(field, offset_bytes);
  if (!at) return std::nullopt;
  return buffer_->table_at(buffer_->follow(*at), depth_ + 1);
}

std::string_view Table::text(unsigned field) const {
  const auto at = find(field, offset_bytes);
  return at ? buffer_->text_at(buffer_->follow(*at)) : std::string_view();
}

Vector Table::vector(unsigned field, unsigned element) const {
  const auto at = find(field, offset_bytes);
  if (!at) return {};
  return {*buffer_, buffer_->vector_at(buffer_->follow(*at), element), element, depth_};
}

}  // namespace onecopy::flatbuffer
