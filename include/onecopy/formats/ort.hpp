// Reading ONNX Runtime's own model files (.ort): where every constant lies, found by walking the FlatBuffer in place.
//
// The file holds the graph after optimisation. Entries are the initialisers of the main graph, by their names, and
// those of subgraphs and attributes behind "<node>.<attribute>.", as in `onnx.hpp`; where a model has two of such a
// path, the later ones end in "~2", "~3". ONNX Runtime aligns `raw_data` to 4 bytes only. Constants that are no bytes
// of this file (texts, sparse tensors, what a training session keeps in a file of its own) are counted in the metadata
// under "left out"; there are "ort_version" and "producer", too.
// https://github.com/microsoft/onnxruntime/blob/main/onnxruntime/core/flatbuffers/schema/ort.fbs, as of ONNX Runtime
// 1.31; what later versions may add is passed over, as the format wants it.
#pragma once

#include "onecopy/base/bytes.hpp"
#include "onecopy/formats/index.hpp"

namespace onecopy::ort {

inline constexpr int deepest_graph = 32;  // subgraphs inside each other

// By content: the identifier "ORTM" behind an offset that can be one.
bool is_ort(Bytes file) noexcept;

// Throws FormatError: offsets that lead astray, sizes that disagree with type and shape, two initialisers of one name,
// data that overlaps, graphs too deep.
Index parse(Bytes file);

}  // namespace onecopy::ort
