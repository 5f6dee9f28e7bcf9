// CRC-32C (Castagnoli), the checksum of iSCSI, ext4 and onecopy's files: one instruction on SSE4.2 and ARMv8.
#pragma once

#include <cstdint>

#include "onecopy/base/bytes.hpp"

namespace onecopy {

// The checksum of all bytes fed so far, followed by `bytes`; start with 0.
std::uint32_t crc32c(std::uint32_t before, Bytes bytes) noexcept;

// The portable CRC-32C: table lookups, eight bytes at a time. The fallback for CPUs without the instruction.
std::uint32_t crc32c_portable(std::uint32_t before, Bytes bytes) noexcept;

}  // namespace onecopy
