#include "onecopy/formats/layout.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <unordered_set>
#include <utility>

#include "base/rounding.hpp"
#include "base/seeded_hash.hpp"
#include "formats/checked_size.hpp"
#include "formats/onecopy_metadata.hpp"
#include "formats/wire/json.hpp"
#include "onecopy/base/error.hpp"
#include "onecopy/formats/safetensors.hpp"

namespace onecopy {
namespace {

constexpr std::uint64_t line = 64;  // bytes: where aligned SIMD loads want to begin
constexpr std::uint64_t largest_file = UINT64_MAX / 2;
constexpr std::uint64_t tail = 64;  // code that over-reads a little stays inside

[[noreturn]] void refuse_header() {
  reject(FormatError::too_costly, "the header would exceed the 100 MB that readers accept");
}

std::uint64_t byte_size(const ArraySpec& array) {
  const auto size = checked_size(array.shape, bits(array.dtype));
  if (!size || *size > largest_file)
    reject(FormatError::unsupported, json::describe(array.name) + " exceeds the maximum size of a file");
  if (*size % 8 != 0)
    reject(FormatError::unsupported, json::describe(array.name), " has ", *size, " bits, which are not whole bytes");
  return *size / 8;
}

void check_names(std::span<const ArraySpec> arrays, bool has_fillers) {
  std::unordered_set<std::string_view, SeededHash> names;
  for (const auto& array : arrays) {
    if (!json::is_utf8(array.name)) reject(FormatError::malformed, "an array's name is not UTF-8");
    if (array.name == "__metadata__")
      reject(FormatError::unsupported, "the name '__metadata__' is reserved by the format");
    if (has_fillers && array.name.starts_with('#'))
      reject(FormatError::unsupported,
             json::describe(array.name) + ": names that begin with '#' are reserved for fillers in an aligned file");
    if (!names.insert(array.name).second)
      reject(FormatError::inconsistent, "two arrays have the name " + json::describe(array.name));
  }
}

void check_options(const LayoutOptions& options) {
  const std::uint64_t align = options.align.value_or(line);
  if (!std::has_single_bit(align) || align < line || align > (std::uint64_t{2} << 20U))
    reject(FormatError::unsupported, "align must be a power of two from 64 to 2097152, not " + std::to_string(align));
  for (const auto& [key, value] : options.metadata) {
    if (!json::is_utf8(key) || !json::is_utf8(value)) reject(FormatError::malformed, "metadata is not UTF-8");
    if (key == metadata::key) reject(FormatError::unsupported, "the metadata key 'onecopy' is reserved");
  }
}

}  // namespace

Layout Layout::plan(std::vector<ArraySpec> arrays, LayoutOptions options) {
  Layout layout;
  check_options(options);
  options.metadata.try_emplace("format", "pt");  // loaders of the 4.x era refuse a file without it
  if (options.kind != Kind::arrays) options.align = options.align.value_or(line);
  check_names(arrays, options.align.has_value());
  layout.arrays_ = std::move(arrays);
  layout.options_ = std::move(options);
  layout.place();
  layout.move_behind_header();
  return layout;
}

// With the data section at 0.
void Layout::place() {
  std::vector<std::pair<std::size_t, std::uint64_t>> order;
  order.reserve(arrays_.size());
  for (std::size_t i = 0; i < arrays_.size(); ++i) order.emplace_back(i, byte_size(arrays_[i]));
  if (!options_.align) {
    // Without fillers: whole lines first, then by falling item size, so that each ends where the next may begin.
    const auto rank = [this](const auto& one) {
      return one.second % line == 0 ? line : std::uint64_t{item_alignment(arrays_[one.first].dtype)};
    };
    std::ranges::stable_sort(order, std::greater{}, rank);
  }
  for (const auto& [array, length] : order) {
    if (options_.align) fill_to(*options_.align);
    if (!in_bounds(largest_file, file_size_, length))
      reject(FormatError::unsupported, "the arrays together exceed the maximum size of a file");
    placements_.push_back({array, file_size_, length});
    file_size_ += length;
  }
  if (options_.kind != Kind::arrays) {
    placements_.push_back({std::nullopt, file_size_, tail});
    file_size_ += tail;
  }
}

// The header's length depends on the number of checksums, and that on where the data begins, which is behind the
// header. The data section only moves back, and a header that got shorter again is padded: so this settles.
void Layout::move_behind_header() {
  const std::uint64_t boundary = std::max(data_alignment, options_.align.value_or(0));
  // Before a byte is allocated for them: a checksum takes more than 5 bytes of the header.
  if (block_count() > safetensors::largest_header / 5) refuse_header();
  for (;;) {
    const std::vector<std::uint32_t> blocks(block_count());
    const std::uint64_t header = safetensors::length_bytes + json(blocks).text.size();
    const std::uint64_t needed = round_up(std::max(header, options_.least_data_offset), boundary);
    if (needed <= data_offset_) break;
    file_size_ += needed - data_offset_;
    for (auto& placement : placements_) placement.offset += needed - data_offset_;
    data_offset_ = needed;
  }
  if (data_offset_ - safetensors::length_bytes > safetensors::largest_header) refuse_header();
  if (file_size_ > largest_file) reject(FormatError::unsupported, "the file would exceed the maximum size of a file");
}

void Layout::fill_to(std::uint64_t boundary) {
  const std::uint64_t end = round_up(file_size_, boundary);
  if (end == file_size_) return;
  placements_.push_back({std::nullopt, file_size_, end - file_size_});
  file_size_ = end;
}

std::size_t Layout::block_count() const noexcept {
  if (!options_.checksum) return 0;
  const ByteRange data{data_offset_, file_size_ - data_offset_};
  return static_cast<std::size_t>(BlockChecksums::count(data, checksum_block));
}

Layout::Json Layout::json(std::span<const std::uint32_t> blocks) const {
  std::string text = "{\"__metadata__\":{";
  for (const auto& [key, value] : options_.metadata) text += json::quoted(key) + ":" + json::quoted(value) + ",";
  text += json::quoted(metadata::key) + ":" +
          json::quoted(metadata::write({.kind = options_.kind,
                                        .align = options_.align.value_or(0),
                                        .schema = options_.schema,
                                        .blocks = options_.checksum ? std::optional(blocks) : std::nullopt}));
  const std::size_t ours_end = text.size();
  text += '}';
  std::vector<const Placement*> of_array(arrays_.size());
  for (const auto& placement : placements_)
    if (placement.array) of_array[*placement.array] = &placement;
  const auto add = [&](const std::string& name, std::string_view dtype, std::span<const std::uint64_t> shape,
                       const Placement& placement) {
    text += "," + json::quoted(name) + ":{\"dtype\":\"" + std::string(dtype) + "\",\"shape\":[";
    for (std::size_t i = 0; i < shape.size(); ++i) text += (i == 0 ? "" : ",") + std::to_string(shape[i]);
    const std::uint64_t begin = placement.offset - data_offset_;
    text += "],\"data_offsets\":[" + std::to_string(begin) + "," + std::to_string(begin + placement.length) + "]}";
  };
  for (std::size_t i = 0; i < arrays_.size(); ++i)
    add(arrays_[i].name, to_string(arrays_[i].dtype), arrays_[i].shape, *of_array[i]);
  std::size_t fillers = 0;
  for (const auto& placement : placements_)
    if (!placement.array) add("#" + std::to_string(fillers++), "U8", std::array{placement.length}, placement);
  text += '}';
  return {std::move(text), ours_end};
}

std::string Layout::header(std::span<const std::uint32_t> blocks) const {
  auto [text, ours_end] = json(blocks);
  text.resize(data_offset_ - safetensors::length_bytes, ' ');
  std::string first_bytes;
  for (unsigned i = 0; i < safetensors::length_bytes; ++i)
    first_bytes.push_back(static_cast<char>((text.size() >> (8 * i)) & 0xFFU));
  first_bytes += text;
  if (!options_.checksum) return first_bytes;
  const std::size_t at = metadata::header_crc_before(safetensors::length_bytes + ours_end);
  return first_bytes.replace(at, 8, metadata::header_crc(first_bytes, at));
}

}  // namespace onecopy
