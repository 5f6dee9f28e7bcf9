// Any bytes: refused with a FormatError, or accepted as .npy, and then there is one array that is all of the rest.
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "onecopy/base/error.hpp"
#include "onecopy/formats/npy.hpp"
#include "touch_arrays.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // A copy of exactly this size, so that the address sanitizer sees one byte too far.
  const std::vector<std::byte> file(reinterpret_cast<const std::byte*>(data),
                                    reinterpret_cast<const std::byte*>(data) + size);
  try {
    auto index = onecopy::npy::parse(file);
    fuzz::expect(onecopy::npy::is_npy(file));
    fuzz::expect(index.entries().size() == 1);
    fuzz::expect(index.entries()[0].offset + index.entries()[0].length == file.size());
    const auto sum = fuzz::touch(index, file);
    const auto moved = std::move(index);  // the memory that its entries refer to moves with it
    fuzz::expect(fuzz::touch(moved, file) == sum);
  } catch (const onecopy::FormatError& error) {
    fuzz::touch(error.what());  // a message that can be shown
  }
  return 0;
}
