#include "onecopy/base/crc32c.hpp"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#elif defined(__aarch64__) && defined(__ARM_FEATURE_CRC32)
#include <arm_acle.h>
#endif

namespace onecopy {
namespace {

constexpr std::uint32_t polynomial = 0x82F63B78U;  // reflected 0x1EDC6F41

constexpr std::array<std::uint32_t, 256> make_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1U) != 0 ? polynomial : 0U);
    table[byte] = crc;
  }
  return table;
}

constexpr auto table = make_table();

std::uint64_t load_word(const std::byte* at) noexcept {
  std::uint64_t word;
  std::memcpy(&word, at, sizeof word);  // no alignment is promised
  return word;
}

#if defined(__x86_64__)

__attribute__((target("sse4.2"))) std::uint32_t crc32c_sse42(std::uint32_t before, Bytes bytes) noexcept {
  std::uint64_t crc = ~before;
  const std::byte* at = bytes.data();
  std::size_t left = bytes.size();
  for (; left >= 8; left -= 8, at += 8) crc = _mm_crc32_u64(crc, load_word(at));
  auto last = static_cast<std::uint32_t>(crc);
  for (; left > 0; --left, ++at) last = _mm_crc32_u8(last, std::to_integer<std::uint8_t>(*at));
  return ~last;
}

bool has_instruction() noexcept { return __builtin_cpu_supports("sse4.2") != 0; }
std::uint32_t by_instruction(std::uint32_t before, Bytes bytes) noexcept { return crc32c_sse42(before, bytes); }

#elif defined(__aarch64__) && defined(__ARM_FEATURE_CRC32)

bool has_instruction() noexcept { return true; }

std::uint32_t by_instruction(std::uint32_t before, Bytes bytes) noexcept {
  std::uint32_t crc = ~before;
  const std::byte* at = bytes.data();
  std::size_t left = bytes.size();
  for (; left >= 8; left -= 8, at += 8) crc = __crc32cd(crc, load_word(at));
  for (; left > 0; --left, ++at) crc = __crc32cb(crc, std::to_integer<std::uint8_t>(*at));
  return ~crc;
}

#else

bool has_instruction() noexcept { return false; }
std::uint32_t by_instruction(std::uint32_t before, Bytes bytes) noexcept { return crc32c_portable(before, bytes); }

#endif

}  // namespace

std::uint32_t crc32c_portable(std::uint32_t before, Bytes bytes) noexcept {
  std::uint32_t crc = ~before;
  for (const std::byte byte : bytes) crc = (crc >> 8) ^ table[(crc ^ std::to_integer<std::uint32_t>(byte)) & 0xFFU];
  return ~crc;
}

std::uint32_t crc32c(std::uint32_t before, Bytes bytes) noexcept {
  static const bool fast = has_instruction();
  return fast ? by_instruction(before, bytes) : crc32c_portable(before, bytes);
}

}  // namespace onecopy
