// Reading torch checkpoints (.pt, .pth, .ckpt) as torch.save writes them: a zip archive of a pickle and of storages.
//
// Nothing is unpickled. The pickle is parsed into inert values, and the calls that make tensors of storages are
// recognised by their names; every tensor reachable through dicts, lists and tuples becomes an entry, named by its path
// ("model.layers.0.weight"). Tied tensors share their bytes, and strides are those of the file, 0 included. Other
// values are named in metadata["left out"] with their classes (left_out.hpp). Refused with a specific error: torch's
// old format without a zip, TorchScript, big-endian files. The Index owns its names and does not refer to the bytes.
// Pure functions: any thread. https://github.com/pytorch/pytorch/blob/main/torch/serialization.py
#pragma once

#include <cstddef>
#include <string_view>

#include "onecopy/base/bytes.hpp"
#include "onecopy/formats/index.hpp"

namespace onecopy::torch_zip {

inline constexpr std::string_view array_name = "array";  // of a tensor that was saved alone, without a name
inline constexpr std::size_t deepest = 128;              // dicts and lists inside each other

// True for a zip archive with a member "<folder>/data.pkl", and for torch's old format, which parse refuses.
bool is_torch_zip(Bytes file);

// Throws FormatError.
Index parse(Bytes file);

}  // namespace onecopy::torch_zip
