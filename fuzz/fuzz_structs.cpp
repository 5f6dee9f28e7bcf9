// Any bytes as the file of a structure that has one field of every form: refused, or opened, and then every byte that a
// program could reach can be touched.
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "onecopy/base/error.hpp"
#include "onecopy/structs/structs.hpp"
#include "structs_index.hpp"

namespace {

using fuzz::Index;

int memory_file() {
  static const int descriptor = ::memfd_create("fuzz", MFD_CLOEXEC);
  if (descriptor < 0) std::abort();
  return descriptor;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const int descriptor = memory_file();
  if (::ftruncate(descriptor, 0) != 0 || ::pwrite(descriptor, data, size, 0) != static_cast<ssize_t>(size))
    std::abort();
  for (const auto mode : {onecopy::Mode::map, onecopy::Mode::copy}) {
    try {
      const auto file = onecopy::open<Index>(descriptor, "fuzz", {.mode = mode});
      volatile std::uint64_t sum = fuzz::touch(*file) + to_string(file.report()).size();
      static_cast<void>(sum);
    } catch (const onecopy::FormatError&) {
    } catch (const onecopy::OsError&) {
    }
  }
  return 0;
}
