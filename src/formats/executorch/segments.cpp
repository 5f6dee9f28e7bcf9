#include "formats/executorch/segments.hpp"

#include <algorithm>
#include <array>
#include <optional>

#include "formats/wire/cursor.hpp"
#include "onecopy/base/error.hpp"

namespace onecopy::executorch {
namespace {

constexpr std::string_view program_magic = "eh00";
constexpr std::string_view flat_tensor_magic = "FH01";
constexpr unsigned segment_offset = 0;  // fields of DataSegment
constexpr unsigned segment_size = 1;

// The numbers in a header of ExecuTorch, which are those after its four letters and its length; none: the file has no
// such header. Throws FormatError where there are fewer than `least`. Numbers that an early header lacks are 0.
std::optional<std::array<std::uint64_t, 4>> read_header(Bytes file, std::string_view magic, std::uint64_t least) {
  constexpr std::uint64_t header_at = 8;   // behind the offset of the root and the identifier
  constexpr std::uint64_t head_bytes = 8;  // the letters and the length
  if (!in_bounds(file.size(), header_at, head_bytes)) return std::nullopt;
  Cursor cursor("ExecuTorch", "the header", file, {header_at, file.size() - header_at});
  if (cursor.text(magic.size()) != magic) return std::nullopt;
  const std::uint64_t length = cursor.number(4);
  if (length < head_bytes || length - head_bytes > cursor.left())
    cursor.fail(FormatError::truncated, "the header '", magic, "' would have ", length, " bytes, but the file has ",
                file.size());
  const std::uint64_t count = (length - head_bytes) / 8;
  if (count < least) cursor.fail(FormatError::malformed, "the header '", magic, "' has only ", count, " numbers");
  std::array<std::uint64_t, 4> numbers{};
  for (std::uint64_t i = 0; i < std::min<std::uint64_t>(count, numbers.size()); ++i) numbers.at(i) = cursor.number(8);
  return numbers;
}

// Segments of 0 bytes reach to the end of the file, as early headers have no size.
Area area_of(Bytes file, ByteRange flatbuffer, std::optional<ByteRange> segments) {
  if (!in_bounds(file.size(), flatbuffer.offset, flatbuffer.length))
    reject(FormatError::truncated, "ExecuTorch: the FlatBuffer would be ", flatbuffer.length, " bytes from byte ",
           flatbuffer.offset, " on, but the file has ", file.size());
  const std::uint64_t end = flatbuffer.offset + flatbuffer.length;
  if (!segments) return {end, {end, 0}};
  const auto [begin, size] = *segments;
  if (!in_bounds(file.size(), begin, size))
    reject(FormatError::truncated, "ExecuTorch: segments of ", size, " bytes would begin at byte ", begin,
           ", but the file has ", file.size());
  if (begin < end)
    reject(FormatError::inconsistent, "ExecuTorch: segments would begin at byte ", begin,
           ", inside the FlatBuffer, which ends at ", end);
  return {end, {begin, size != 0 ? size : file.size() - begin}};
}

}  // namespace

// Program size, where segments begin, and since 2025 their size. Without segments there is no header.
Area area_of_program(Bytes file) {
  const auto header = read_header(file, program_magic, 2);
  if (!header) return {file.size(), {file.size(), 0}};
  const auto [size, begin, length, unused] = *header;
  return area_of(file, {0, size}, begin != 0 ? std::optional(ByteRange{begin, length}) : std::nullopt);
}

// The start of the FlatBuffer behind the header, its size, the start of the segments, and their size.
Area area_of_flat_tensor(Bytes file) {
  const auto header = read_header(file, flat_tensor_magic, 4);
  if (!header) reject(FormatError::not_this_format, "ExecuTorch: the file has no header 'FH01'");
  const auto [offset, size, begin, length] = *header;
  return area_of(file, {offset, size}, length != 0 ? std::optional(ByteRange{begin, length}) : std::nullopt);
}

Segments::Segments(const flatbuffer::Vector& list, const Area& area) {
  for (std::uint32_t i = 0; i < list.size(); ++i) {
    const auto segment = list.table(i);
    const auto offset = segment.number<std::uint64_t>(segment_offset);
    const auto size = segment.number<std::uint64_t>(segment_size);
    if (!in_bounds(area.data.length, offset, size))
      reject(FormatError::out_of_bounds, "ExecuTorch: segment ", i, " of ", size, " bytes would begin at byte ", offset,
             " of the segments, which have ", area.data.length);
    ranges_.push_back({area.data.offset + offset, size});
  }
  if (const auto pair = overlap_in(ranges_))
    reject(FormatError::inconsistent, "ExecuTorch: segment ", pair->second, " begins inside segment ", pair->first);
  used_.resize(ranges_.size());
}

ByteRange Segments::use(std::uint32_t i, std::string_view user) {
  if (i >= ranges_.size())
    reject(FormatError::out_of_bounds, "ExecuTorch: ", user, " lies in segment ", i, ", but there are ",
           ranges_.size());
  used_[i] = true;
  return ranges_[i];
}

void Segments::add_unused(EntryList& entries) const {
  for (std::size_t i = 0; i < ranges_.size(); ++i)
    if (!used_[i]) entries.add_bytes("segment." + std::to_string(i), ranges_[i]);
}

}  // namespace onecopy::executorch
