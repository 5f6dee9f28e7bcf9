// Reading safetensors: u64 little-endian header length N, N bytes of JSON, then the data section.
//
// Strict, because a lenient parser is an attack surface: the whole header is checked before any value is used (length
// against the file and a cap of 100 MB, UTF-8, JSON grammar and depth, names, types, shapes, offsets, no overlap, no
// hole). Accepts every file the safetensors package writes. The Index owns its names and does not refer to the bytes.
// Pure functions: any thread.
// https://github.com/huggingface/safetensors#format
#pragma once

#include <cstdint>
#include <vector>

#include "onecopy/base/bytes.hpp"
#include "onecopy/formats/index.hpp"

namespace onecopy::safetensors {

inline constexpr std::uint64_t largest_header = 100'000'000;
inline constexpr std::uint64_t length_bytes = 8;

// N, checked against the file's size in bytes. `first` holds the file's first 8 bytes at least. Throws FormatError.
std::uint64_t header_length(Bytes first, std::uint64_t file_size);

// Parses the N bytes of JSON. Throws FormatError.
Index parse(std::vector<char> header, std::uint64_t file_size);

// Parses a whole file in memory.
Index parse(Bytes file);

}  // namespace onecopy::safetensors
