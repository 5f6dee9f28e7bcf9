#include "formats/executorch/segments.hpp"

#include "formats/wire/json.hpp"
#include "onecopy/base/error.hpp"

namespace onecopy::executorch {
namespace {

constexpr std::uint64_t header_at = 8;   // behind the offset of the root and the identifier
constexpr std::uint64_t head_bytes = 8;  // of a header: four letters and its length
constexpr std::string_view program_magic = "eh00";
constexpr std::string_view flat_tensor_magic = "FH01";
constexpr unsigned segment_offset = 0;  // fields of DataSegment
constexpr unsigned segment_size = 1;

// A header of ExecuTorch: four letters, its own length, and numbers of 64 bits.
class Header {
 public:
  Header(Bytes file, std::string_view magic) : file_(file), magic_(magic) {
    if (!is_there()) return;
    const std::uint64_t length = number(header_at + 4, 4);
    if (!in_bounds(file.size(), header_at, length) || length < head_bytes)
      reject(FormatError::truncated, "ExecuTorch: the header '", magic, "' would have ", length,
             " bytes, but the file has ", file.size());
    count_ = (length - head_bytes) / 8;
  }

  bool is_there() const noexcept {
    if (!in_bounds(file_.size(), header_at, head_bytes)) return false;
    const Bytes found = file_.subspan(header_at, magic_.size());
    return std::string_view(reinterpret_cast<const char*>(found.data()), found.size()) == magic_;
  }

  bool has(std::uint64_t i) const noexcept { return i < count_; }

  std::uint64_t at(std::uint64_t i) const {
    if (!has(i))
      reject(FormatError::malformed, "ExecuTorch: the header '", magic_, "' has ", count_,
             " numbers, which are too few");
    return number(header_at + head_bytes + 8 * i, 8);
  }

 private:
  std::uint64_t number(std::uint64_t at, unsigned bytes) const noexcept {
    return little_endian(file_.subspan(at, bytes));
  }

  Bytes file_;
  std::string_view magic_;
  std::uint64_t count_ = 0;
};

// `size` 0: to the end of the file, as early headers have no size.
ByteRange data_of(Bytes file, std::uint64_t begin, std::uint64_t size) {
  if (!in_bounds(file.size(), begin, size))
    reject(FormatError::truncated, "ExecuTorch: segments of ", size, " bytes would begin at byte ", begin,
           ", but the file has ", file.size());
  return {begin, size != 0 ? size : file.size() - begin};
}

void expect_in_file(Bytes file, std::uint64_t begin, std::uint64_t size) {
  if (!in_bounds(file.size(), begin, size))
    reject(FormatError::truncated, "ExecuTorch: the FlatBuffer would be ", size, " bytes from byte ", begin,
           " on, but the file has ", file.size());
}

void expect_data_behind(const Area& area) {
  if (area.data.offset < area.flatbuffer)
    reject(FormatError::inconsistent, "ExecuTorch: segments would begin at byte ", area.data.offset,
           ", inside the FlatBuffer, which ends at ", area.flatbuffer);
}

}  // namespace

// Program size, where segments begin, and since 2025 their size. Without segments there is no header.
Area area_of_program(Bytes file) {
  const Header header(file, program_magic);
  if (!header.is_there()) return {file.size(), {file.size(), 0}};
  expect_in_file(file, 0, header.at(0));
  Area area{header.at(0), {}};
  if (header.at(1) == 0) return {area.flatbuffer, {area.flatbuffer, 0}};
  area.data = data_of(file, header.at(1), header.has(2) ? header.at(2) : 0);
  expect_data_behind(area);
  return area;
}

// The start of the FlatBuffer behind the header, its size, the start of the segments, and their size.
Area area_of_flat_tensor(Bytes file) {
  const Header header(file, flat_tensor_magic);
  if (!header.is_there()) reject(FormatError::not_this_format, "ExecuTorch: the file has no header 'FH01'");
  expect_in_file(file, header.at(0), header.at(1));
  Area area{header.at(0) + header.at(1), {}};
  if (header.at(3) == 0) return {area.flatbuffer, {area.flatbuffer, 0}};
  area.data = data_of(file, header.at(2), header.at(3));
  expect_data_behind(area);
  return area;
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
