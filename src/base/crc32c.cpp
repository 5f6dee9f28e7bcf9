#include "onecopy/base/crc32c.hpp"

#include <array>
#include <bit>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>  // the one place of `base` that asks the system: which CPU this is
#endif

namespace onecopy {
namespace {

constexpr std::uint32_t polynomial = 0x82F63B78U;  // reflected 0x1EDC6F41

// tables[n][byte]: what a byte does to the state when n zero bytes follow it. Eight bytes are eight independent
// lookups.
using Tables = std::array<std::array<std::uint32_t, 256>, 8>;

constexpr Tables make_tables() {
  Tables tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1U) != 0 ? polynomial : 0U);
    tables[0][byte] = crc;
  }
  for (std::size_t n = 1; n < tables.size(); ++n)
    for (std::size_t byte = 0; byte < 256; ++byte)
      tables[n][byte] = (tables[n - 1][byte] >> 8) ^ tables[0][tables[n - 1][byte] & 0xFFU];
  return tables;
}

constexpr Tables tables = make_tables();

std::uint32_t eat_by_table(std::uint32_t state, std::byte byte) noexcept {
  return (state >> 8) ^ tables[0][(state ^ std::to_integer<std::uint32_t>(byte)) & 0xFFU];
}

std::uint64_t load_word(const std::byte* at) noexcept {
  std::uint64_t word;
  std::memcpy(&word, at, sizeof word);  // unaligned
  return word;
}

#if defined(__x86_64__)
#define ONECOPY_HAS_CRC_INSTRUCTION 1
#if defined(__clang__)  // if the compiler's target excludes crc32, as zig's does, sse4.2 does not include it
#define ONECOPY_CRC_TARGET __attribute__((target("sse4.2,crc32")))
#else
#define ONECOPY_CRC_TARGET __attribute__((target("sse4.2")))
#endif

ONECOPY_CRC_TARGET inline std::uint32_t eat_word(std::uint32_t state, std::uint64_t word) noexcept {
  return static_cast<std::uint32_t>(_mm_crc32_u64(state, word));
}
ONECOPY_CRC_TARGET inline std::uint32_t eat_byte(std::uint32_t state, std::byte byte) noexcept {
  return _mm_crc32_u8(state, std::to_integer<std::uint8_t>(byte));
}
bool has_instruction() noexcept { return __builtin_cpu_supports("sse4.2") != 0; }

#elif defined(__aarch64__) && (defined(__linux__) || defined(__ARM_FEATURE_CRC32))
#define ONECOPY_HAS_CRC_INSTRUCTION 1
#define ONECOPY_CRC_TARGET

// Optional in ARMv8.0, the target of generic builds: always assembled, and used where the CPU has it.
inline std::uint32_t eat_word(std::uint32_t state, std::uint64_t word) noexcept {
  asm(".arch_extension crc\n\tcrc32cx %w0, %w0, %x1" : "+r"(state) : "r"(word));
  return state;
}
inline std::uint32_t eat_byte(std::uint32_t state, std::byte byte) noexcept {
  asm(".arch_extension crc\n\tcrc32cb %w0, %w0, %w1" : "+r"(state) : "r"(std::to_integer<std::uint32_t>(byte)));
  return state;
}
#if defined(__ARM_FEATURE_CRC32)
bool has_instruction() noexcept { return true; }
#else
bool has_instruction() noexcept { return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0; }
#endif

#endif

#if defined(ONECOPY_HAS_CRC_INSTRUCTION)

// The instruction has a latency of three cycles and a throughput of one per cycle: three streams saturate it.
constexpr std::size_t stream = 4096;  // bytes

// The product of two polynomials modulo ours, both reflected: bit 31 is x^0.
constexpr std::uint32_t product(std::uint32_t a, std::uint32_t b) noexcept {
  std::uint32_t sum = 0;
  for (std::uint32_t bit = 0x80000000U; bit != 0; bit >>= 1) {
    if ((a & bit) != 0) sum ^= b;
    b = (b >> 1) ^ ((b & 1U) != 0 ? polynomial : 0U);
  }
  return sum;
}

// The effect of `stream` zero bytes on a state is linear: a product with x^(8 * stream), looked up byte by byte.
using Skip = std::array<std::array<std::uint32_t, 256>, 4>;

constexpr Skip make_skip() {
  std::uint32_t power = 0x40000000U;  // x
  for (std::size_t bits = 1; bits < 8 * stream; bits *= 2) power = product(power, power);
  Skip skip{};
  for (std::uint32_t i = 0; i < 4; ++i)
    for (std::uint32_t byte = 0; byte < 256; ++byte) skip[i][byte] = product(power, byte << (8 * i));
  return skip;
}

constexpr Skip skip = make_skip();

std::uint32_t skip_stream(std::uint32_t state) noexcept {
  return skip[0][state & 0xFFU] ^ skip[1][(state >> 8) & 0xFFU] ^ skip[2][(state >> 16) & 0xFFU] ^ skip[3][state >> 24];
}

ONECOPY_CRC_TARGET std::uint32_t by_instruction(std::uint32_t before, Bytes bytes) noexcept {
  std::uint32_t state = ~before;
  const std::byte* at = bytes.data();
  std::size_t left = bytes.size();
  for (; left >= 3 * stream; left -= 3 * stream, at += 3 * stream) {
    std::uint32_t second = 0;
    std::uint32_t third = 0;
    for (std::size_t i = 0; i < stream; i += 8) {
      state = eat_word(state, load_word(at + i));
      second = eat_word(second, load_word(at + stream + i));
      third = eat_word(third, load_word(at + 2 * stream + i));
    }
    state = skip_stream(skip_stream(state) ^ second) ^ third;
  }
  for (; left >= 8; left -= 8, at += 8) state = eat_word(state, load_word(at));
  for (; left > 0; --left, ++at) state = eat_byte(state, *at);
  return ~state;
}

#else

bool has_instruction() noexcept { return false; }
std::uint32_t by_instruction(std::uint32_t before, Bytes bytes) noexcept { return crc32c_portable(before, bytes); }

#endif

}  // namespace

std::uint32_t crc32c_portable(std::uint32_t before, Bytes bytes) noexcept {
  std::uint32_t state = ~before;
  const std::byte* at = bytes.data();
  std::size_t left = bytes.size();
  if constexpr (std::endian::native == std::endian::little)
    for (; left >= 8; left -= 8, at += 8) {
      const std::uint64_t word = load_word(at) ^ state;
      state = 0;
      for (std::size_t i = 0; i < 8; ++i) state ^= tables[7 - i][(word >> (8 * i)) & 0xFFU];
    }
  for (; left > 0; --left, ++at) state = eat_by_table(state, *at);
  return ~state;
}

std::uint32_t crc32c(std::uint32_t before, Bytes bytes) noexcept {
  static const bool fast = has_instruction();
  return fast ? by_instruction(before, bytes) : crc32c_portable(before, bytes);
}

}  // namespace onecopy
