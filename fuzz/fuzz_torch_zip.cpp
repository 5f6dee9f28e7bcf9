// Any bytes: a file, or the pickle of a checkpoint with three storages. Refused with a FormatError, or accepted, and
// then every tensor lies in the file, and in a storage where the file is one that we made.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "onecopy/base/error.hpp"
#include "onecopy/formats/torch_zip.hpp"
#include "touch_arrays.hpp"
#include "zip_of.hpp"

namespace {

constexpr std::string_view fill = "<storage>";

std::string storage(std::size_t size) {
  std::string bytes;
  while (bytes.size() < size) bytes += fill;
  return bytes.substr(0, size);
}

// What is no archive is taken for a pickle without its protocol: mutations then stay in what is worth it.
std::string file_of(std::string_view input) {
  if (input.starts_with("PK") || input.starts_with("\x80\x02\x8A\x0A")) return std::string(input);
  return onecopy::tests::zip_of({{.name = "x/data.pkl", .data = "\x80\x02" + std::string(input)},
                                 {.name = "x/data/0", .data = storage(64)},
                                 {.name = "x/data/1", .data = storage(16)},
                                 {.name = "x/data/2"}});
}

// The first headers of the storages behind the pickle, which can hold their names too.
void expect_in_storage(const onecopy::Entry& entry, std::string_view file, std::size_t behind) {
  const auto inside = [&](std::string_view name, std::size_t size) {
    const auto begin = file.find(name, behind) + name.size();
    return entry.offset >= begin && entry.offset + entry.length <= begin + size;
  };
  fuzz::expect(inside("x/data/0", 64) || inside("x/data/1", 16) || inside("x/data/2", 0));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const auto text = file_of(input);
  // A copy of exactly this size, so that the address sanitizer sees one byte too far.
  const auto bytes = std::as_bytes(std::span(text.data(), text.size()));
  const std::vector<std::byte> file(bytes.begin(), bytes.end());
  (void)onecopy::torch_zip::is_torch_zip(file);  // throws nothing
  try {
    auto index = onecopy::torch_zip::parse(file);
    if (text.size() != input.size())
      for (const auto& entry : index.entries()) expect_in_storage(entry, text, 42 + input.size());
    const auto sum = fuzz::touch(index, file);
    const auto moved = std::move(index);  // the memory that its entries refer to moves with it
    fuzz::expect(fuzz::touch(moved, file) == sum);
  } catch (const onecopy::FormatError& error) {
    fuzz::touch(error.what());  // a message that can be shown
  }
  return 0;
}
