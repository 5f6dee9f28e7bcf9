// Map or copy? Decides from facts that are cheap to get before a file is opened, and reports the reason.
//
//     const ModeChoice choice = choose_mode("model.safetensors");
//     const auto model = ArrayFile::open("model.safetensors", {.mode = choice.mode});
//
// It never copies for speed, because a copy costs the whole file in every process (docs/explanation/when-to-copy.md).
// Threads: any.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "onecopy/files/mapping.hpp"

namespace onecopy {

struct ModeChoice {
  Mode mode = Mode::map;
  bool huge =
      false;  // a mapping benefits from 2 MiB pages: warm(mapping, everything, {.mechanism = Mechanism::advise})
  std::string reason;  // a sentence
};

// Throws OsError if the file cannot be opened. `whole`: the size in bytes of all files that are opened together with
// it.
ModeChoice choose_mode(const std::filesystem::path& path, std::uint64_t whole = 0);

}  // namespace onecopy
