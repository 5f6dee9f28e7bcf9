// Any bytes: refused with a FormatError, or accepted as .npz, and then no array lies over another one.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "onecopy/base/error.hpp"
#include "onecopy/formats/npz.hpp"
#include "touch_arrays.hpp"

namespace {

void expect_apart(const onecopy::Index& index) {
  std::vector<onecopy::ByteRange> ranges;
  for (const auto& entry : index.entries()) ranges.push_back(entry.range());
  std::ranges::sort(ranges, {}, [](const auto& range) { return std::pair(range.offset, range.length); });
  for (std::size_t i = 1; i < ranges.size(); ++i)
    fuzz::expect(fuzz::Wide{ranges[i - 1].offset} + ranges[i - 1].length <= ranges[i].offset);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // A copy of exactly this size, so that the address sanitizer sees one byte too far.
  const std::vector<std::byte> file(reinterpret_cast<const std::byte*>(data),
                                    reinterpret_cast<const std::byte*>(data) + size);
  (void)onecopy::npz::is_npz(file);  // throws nothing
  try {
    auto index = onecopy::npz::parse(file);
    fuzz::expect(!index.entries().empty());
    expect_apart(index);
    const auto sum = fuzz::touch(index, file);
    const auto moved = std::move(index);  // the memory that its entries refer to moves with it
    fuzz::expect(fuzz::touch(moved, file) == sum);
  } catch (const onecopy::FormatError& error) {
    fuzz::touch(error.what());  // a message that can be shown
  }
  return 0;
}
