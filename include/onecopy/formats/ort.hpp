// Reading ONNX Runtime's own model files (.ort): finds every constant by traversing the FlatBuffer in place.
//
// The file holds the graph after optimisation. Entries are the initialisers of the main graph, by their names, and
// those of subgraphs and attributes with the prefix "<node>.<attribute>.", as in `onnx.hpp`; repeated paths get the
// suffixes "~2", "~3". ONNX Runtime aligns `raw_data` to 4 bytes only. Constants without bytes in this file (texts,
// sparse tensors, external data of a training session) are named in the metadata under "left out" (left_out.hpp);
// "ort_version" and "producer" are in the metadata, too.
// https://github.com/microsoft/onnxruntime/blob/main/onnxruntime/core/flatbuffers/schema/ort.fbs, as of ONNX Runtime
// 1.31; additions of later versions are skipped, as the format requires. The Index owns its names and does not refer to
// the bytes. Pure functions: any thread.
#pragma once

#include "onecopy/base/bytes.hpp"
#include "onecopy/formats/index.hpp"

namespace onecopy::ort {

inline constexpr int deepest_graph = 32;  // subgraphs inside each other

// By content: the identifier "ORTM" behind a plausible offset.
bool is_ort(Bytes file) noexcept;

// Throws FormatError: invalid offsets, sizes that disagree with type and shape, two initialisers of one name,
// overlapping data, graphs too deep.
Index parse(Bytes file);

}  // namespace onecopy::ort
