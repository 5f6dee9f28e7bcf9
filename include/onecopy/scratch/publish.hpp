// A scratch file that holds one array becomes a file of arrays in place: what was computed there is not copied.
//
//     const ArraySpec spec{"data", DType::u16, {40'000, 40'000}};
//     auto scratch = ScratchFile::create(bytes, {.head = head_for(spec)});
//     ...
//     const Mapping image = scratch.seal();
//     publish(scratch, "image.safetensors", spec);
//
// Threads: one at a time for one scratch file.
#pragma once

#include <cstdint>
#include <filesystem>

#include "onecopy/formats/layout.hpp"
#include "onecopy/scratch/scratch_file.hpp"

namespace onecopy {

// Bytes to reserve before the data, which the header and `spare` bytes of metadata will fill: whole pages of this
// machine. Throws FormatError for what no file can hold.
std::uint64_t head_for(const ArraySpec& spec, const LayoutOptions& options = {}, std::uint64_t spare = 4096);

// Reads the data once for its checksums, where these are wanted, and keeps to max_resident. Throws OsError, as
// ScratchFile::publish, and EOVERFLOW where the header needs more than the scratch file's head; FormatError where the
// array is not what the scratch file holds.
void publish(ScratchFile& scratch, const std::filesystem::path& path, const ArraySpec& spec, LayoutOptions options = {},
             WriteOptions writing = {});

}  // namespace onecopy
