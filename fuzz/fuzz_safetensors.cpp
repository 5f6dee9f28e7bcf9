// Any bytes: refused with a FormatError, or accepted, and then everything that was accepted can be touched.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <vector>

#include "onecopy/base/error.hpp"
#include "onecopy/formats/safetensors.hpp"

namespace {

// Reads every byte of every array and of every text that the index gives out.
std::uint64_t touch(const onecopy::Index& index, onecopy::Bytes file) {
  std::uint64_t sum = 0;
  for (const auto& entry : index.entries()) {
    for (const char c : entry.name) sum += static_cast<unsigned char>(c);
    sum = std::accumulate(entry.shape.begin(), entry.shape.end(), sum);
    if (!onecopy::in_bounds(file.size(), entry.offset, entry.length)) std::abort();
    for (const std::byte byte : file.subspan(entry.offset, entry.length)) sum += std::to_integer<std::uint64_t>(byte);
    if (index.find(entry.name) != &entry) std::abort();
  }
  for (const auto& [key, value] : index.metadata()) sum += key.size() + value.size();
  return sum;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // A copy of exactly this size, so that the address sanitizer sees one byte too far.
  const std::vector<std::byte> file(reinterpret_cast<const std::byte*>(data),
                                    reinterpret_cast<const std::byte*>(data) + size);
  try {
    const auto index = onecopy::safetensors::parse(file);
    if (touch(index, file) == UINT64_MAX) std::abort();  // used, so that no compiler leaves the reading out
  } catch (const onecopy::FormatError&) {
    // refused: the other right answer
  }
  return 0;
}
