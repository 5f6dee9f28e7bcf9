// A scratch file that holds one array becomes an array file in place, without a copy of its data.
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
// machine. Throws FormatError for an array that no file can hold.
std::uint64_t head_for(const ArraySpec& spec, const LayoutOptions& options = {}, std::uint64_t spare = 4096);

// Reads the data once if checksums are requested, and observes max_resident. Throws OsError as ScratchFile::publish
// does, and with EOVERFLOW if the header is larger than the scratch file's head; FormatError if the scratch file holds
// a different array.
void publish(ScratchFile& scratch, const std::filesystem::path& path, const ArraySpec& spec, LayoutOptions options = {},
             WriteOptions writing = {});

}  // namespace onecopy
