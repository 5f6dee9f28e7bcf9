// CRC-32C (Castagnoli), the checksum of iSCSI, ext4 and of our files: one instruction on SSE4.2 and ARMv8.
#pragma once

#include <cstdint>

#include "onecopy/base/bytes.hpp"

namespace onecopy {

// The checksum of everything fed so far followed by `bytes`; start with 0.
std::uint32_t crc32c(std::uint32_t before, Bytes bytes) noexcept;

// The same by tables, eight bytes at a time, on any CPU: the fallback.
std::uint32_t crc32c_portable(std::uint32_t before, Bytes bytes) noexcept;

}  // namespace onecopy
