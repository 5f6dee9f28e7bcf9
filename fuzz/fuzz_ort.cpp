// Any bytes: refused with a FormatError, or accepted, and then every constant can be touched, is what arithmetic says,
// and shares no byte with another; in time that the size of the file bounds.
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "onecopy/base/error.hpp"
#include "onecopy/formats/ort.hpp"
#include "touch_foreign.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // A copy of exactly this size, so that the address sanitizer sees one byte too far.
  const std::vector<std::byte> file(reinterpret_cast<const std::byte*>(data),
                                    reinterpret_cast<const std::byte*>(data) + size);
  const bool is_known = onecopy::ort::is_ort(file);
  try {
    auto index = onecopy::ort::parse(file);
    foreign::expect(is_known);
    foreign::Wide total = index.data_offset();
    for (const auto& entry : index.entries()) total += entry.length;
    foreign::expect(total <= size);
    const auto sum = foreign::touch(index, file);
    const auto moved = std::move(index);  // the memory that its entries refer to moves with it
    foreign::expect(foreign::touch(moved, file) == sum);
  } catch (const onecopy::FormatError& error) {
    foreign::expect(onecopy::json::is_utf8(error.what()));  // a message that can be shown
  }
  return 0;
}
