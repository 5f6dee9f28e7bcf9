// Any bytes: refused with a FormatError, or accepted, and then everything that was accepted can be touched, and is what
// arithmetic with twice the bits says it is.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "formats/wire/json.hpp"
#include "onecopy/base/error.hpp"
#include "onecopy/formats/safetensors.hpp"

namespace {

__extension__ using Wide = unsigned __int128;

void expect(bool truth) {
  if (!truth) std::abort();
}

std::uint64_t touch(std::string_view text) {
  std::uint64_t sum = text.size();
  for (const char c : text) sum += static_cast<unsigned char>(c);
  return sum;
}

// Reads every byte of an array, and its name and shape.
std::uint64_t touch(const onecopy::Entry& entry, onecopy::Bytes file) {
  std::uint64_t sum = touch(entry.name) + touch(onecopy::to_string(entry.dtype));
  expect(onecopy::json::is_utf8(entry.name));
  expect(Wide{entry.offset} + entry.length <= file.size());
  // Each factor is cut where nothing can fit any more, so that even these bits suffice.
  Wide bits = onecopy::bits(entry.dtype);
  bool is_empty = false;
  for (const std::uint64_t extent : entry.shape) {
    is_empty = is_empty || extent == 0;
    if (bits <= UINT64_MAX) bits *= extent;
  }
  expect(is_empty ? entry.length == 0 : bits == Wide{entry.length} * 8);
  for (const std::byte byte : file.subspan(entry.offset, entry.length)) sum += std::to_integer<std::uint64_t>(byte);
  return sum;
}

std::uint64_t touch(const onecopy::Index& index, onecopy::Bytes file) {
  std::uint64_t sum = touch(onecopy::to_string(index.kind())) + static_cast<std::uint64_t>(index.header_check());
  Wide total = index.data_offset();
  for (const auto& entry : index.entries()) {
    sum += touch(entry, file) + (index.is_filler(entry) ? 1 : 0);
    expect(index.find(entry.name) == &entry);
    expect(entry.offset >= index.data_offset());
    total += entry.length;
    const auto* longer = index.find(std::string(entry.name) + "?");
    expect(longer == nullptr || longer->name.size() == entry.name.size() + 1);
  }
  expect(total == file.size());  // no overlap and no hole
  for (const auto& [key, value] : index.metadata()) {
    sum += touch(key) + touch(value);
    expect(onecopy::json::is_utf8(key) && onecopy::json::is_utf8(value));
  }
  return sum;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // A copy of exactly this size, so that the address sanitizer sees one byte too far.
  const std::vector<std::byte> file(reinterpret_cast<const std::byte*>(data),
                                    reinterpret_cast<const std::byte*>(data) + size);
  try {
    auto index = onecopy::safetensors::parse(file);
    const auto sum = touch(index, file);
    const auto moved = std::move(index);  // the memory that its entries refer to moves with it
    expect(touch(moved, file) == sum);
  } catch (const onecopy::FormatError& error) {
    expect(onecopy::json::is_utf8(error.what()));  // a message that can be shown
  }
  return 0;
}
