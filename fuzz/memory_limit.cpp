// A small input costs little memory: with libFuzzer, an input that is given more than 64 times its size and 64 MiB at
// one time ends the program as a crash would. Every call of LLVMFuzzerTestOneInput comes through here (--wrap).
#include <sanitizer/allocator_interface.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

extern "C" int __real_LLVMFuzzerTestOneInput(const std::uint8_t* data,
                                             std::size_t size);  // NOLINT(bugprone-reserved-identifier)

namespace {

std::atomic<std::int64_t> live = 0;   // bytes since the input began
std::atomic<std::int64_t> limit = 0;  // 0: between inputs

void allocated(const volatile void* /*where*/, std::size_t size) {
  const std::int64_t now = live.fetch_add(static_cast<std::int64_t>(size)) + static_cast<std::int64_t>(size);
  const std::int64_t most = limit.load();
  if (most == 0 || now <= most) return;
  limit = 0;  // what is printed allocates
  std::fprintf(stderr, "memory limit: %lld bytes at one time, and the input allows %lld\n", static_cast<long long>(now),
               static_cast<long long>(most));
  std::abort();
}

void freed(const volatile void* where) {
  if (where != nullptr) live -= static_cast<std::int64_t>(__sanitizer_get_allocated_size(where));
}

}  // namespace

extern "C" int __wrap_LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {  // NOLINT
  static const bool installed = __sanitizer_install_malloc_and_free_hooks(&allocated, &freed) != 0;
  if (!installed) std::abort();
  live = 0;
  limit = static_cast<std::int64_t>(size) * 64 + (std::int64_t{64} << 20U);
  const int result = __real_LLVMFuzzerTestOneInput(data, size);
  limit = 0;
  return result;
}
