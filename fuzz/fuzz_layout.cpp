// Any arrays and options, made from the bytes: refused with a FormatError, or planned, and then the header is read back
// as it was meant: the user's arrays in the user's order, at their places, with a checksum that is right.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "onecopy/base/error.hpp"
#include "onecopy/formats/layout.hpp"
#include "onecopy/formats/safetensors.hpp"

namespace {

void expect(bool truth) {
  if (!truth) std::abort();
}

// Choices, one after the other; zeros when the bytes are used up.
class Choices {
 public:
  Choices(const std::uint8_t* data, std::size_t size) : at_(data), left_(size) {}

  bool empty() const { return left_ == 0; }

  std::uint64_t number(std::size_t bytes) {
    std::uint64_t number = 0;
    for (; bytes > 0; --bytes) number = number << 8U | byte();
    return number;
  }

  std::string text() {
    std::string text;
    for (std::uint64_t size = byte() % 32U; size > 0 && !empty(); --size) text.push_back(static_cast<char>(byte()));
    return text;
  }

 private:
  std::uint8_t byte() {
    if (left_ == 0) return 0;
    --left_;
    return *at_++;
  }

  const std::uint8_t* at_;
  std::size_t left_;
};

onecopy::LayoutOptions options_from(Choices& choices) {
  onecopy::LayoutOptions options;
  const std::uint64_t flags = choices.number(1);
  options.checksum = (flags & 1U) != 0;
  if ((flags & 2U) != 0) options.align = std::uint64_t{1} << (choices.number(1) % 24U);
  if ((flags & 4U) != 0) options.metadata[choices.text()] = choices.text();
  if ((flags & 8U) != 0) options.schema = R"({"a":[1,"\"}}"]})";
  options.kind = static_cast<onecopy::Kind>(1 + (flags >> 4U) % 4);
  return options;
}

std::vector<onecopy::ArraySpec> arrays_from(Choices& choices, bool checksum) {
  std::vector<onecopy::ArraySpec> arrays;
  while (!choices.empty()) {
    onecopy::ArraySpec array;
    array.dtype = onecopy::dtype_table.at(choices.number(1) % onecopy::dtype_table.size()).dtype;
    const std::uint64_t form = choices.number(1);
    // Huge ones too; with checksums not so huge that their list takes all the time.
    const std::size_t widest = checksum ? 2 : 8;
    for (std::uint64_t axis = 0; axis < form % (checksum ? 3 : 4); ++axis)
      array.shape.push_back(choices.number((form & 16U) != 0 ? widest : 1));
    array.name = choices.text();
    arrays.push_back(std::move(array));
  }
  return arrays;
}

void compare(const onecopy::Layout& layout, const onecopy::Index& index, const onecopy::LayoutOptions& options) {
  using onecopy::HeaderCheck;
  expect(index.kind() == options.kind);
  expect(index.header_check() == (options.checksum ? HeaderCheck::matched : HeaderCheck::absent));
  expect(index.data_offset() == layout.data_offset() && layout.data_offset() % onecopy::Layout::data_alignment == 0);
  for (const auto& [key, value] : options.metadata) expect(index.metadata().at(key) == value);
  std::vector<const onecopy::Entry*> shown;
  for (const auto& entry : index.entries())
    if (!index.is_filler(entry)) shown.push_back(&entry);
  expect(shown.size() == layout.arrays().size());
  for (std::size_t i = 0; i < shown.size(); ++i) {
    const auto& array = layout.arrays()[i];
    expect(shown[i]->name == array.name && shown[i]->dtype == array.dtype);
    expect(std::ranges::equal(shown[i]->shape, array.shape));
    expect(shown[i]->offset % options.align.value_or(onecopy::item_alignment(array.dtype)) == 0);
  }
  for (const auto& placement : layout.placements())
    if (placement.array)
      expect(shown[*placement.array]->offset == placement.offset &&
             shown[*placement.array]->length == placement.length);
}

std::optional<onecopy::Layout> plan(std::vector<onecopy::ArraySpec> arrays, const onecopy::LayoutOptions& options) {
  try {
    return onecopy::Layout::plan(std::move(arrays), options);
  } catch (const onecopy::FormatError&) {
    return std::nullopt;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Choices choices(data, size);
  const auto options = options_from(choices);
  const auto layout = plan(arrays_from(choices, options.checksum), options);
  if (!layout) return 0;
  // From here on nothing may be refused: a FormatError is a crash.
  std::vector<std::uint32_t> blocks(layout->block_count());
  std::ranges::generate(blocks, [state = std::uint32_t{1}]() mutable { return state *= 2654435761U; });
  const auto header = layout->header(blocks);
  expect(header.size() == layout->data_offset());
  const auto first = std::as_bytes(std::span(header));
  constexpr auto begin = onecopy::safetensors::length_bytes;
  expect(onecopy::safetensors::header_length(first, layout->file_size()) == header.size() - begin);
  const std::vector<char> json(header.begin() + begin, header.end());
  compare(*layout, onecopy::safetensors::parse(json, layout->file_size()), options);
  return 0;
}
