// Reading ExecuTorch's programs (.pte) and their data (.ptd): a FlatBuffer that says where segments of bytes lie behind
// it.
//
// A program names data and does not type it: entries are bytes (u8). They are named data by their keys; "constant.<i>",
// the places of constant tensors in their segment, each up to the next with the padding between; "delegate.<i>" for
// what backends compiled and the FlatBuffer itself holds; and every other segment as "segment.<i>", among them what
// backends compiled and what tensors that change begin with. In a .ptd file named data can have a layout, and then the
// entry has its type, shape and, where the axes are not in order, strides. Several names may share a segment, as the
// exporter writes equal bytes once. The metadata has "schema", "version" and a program's "methods".
// https://github.com/pytorch/executorch/blob/main/schema/program.fbs ("ET12", extended header "eh00") and
// .../extension/flat_tensor/serialize/flat_tensor.fbs ("FT01", header "FH01", without `tensors`), as of version 1.5.
#pragma once

#include "onecopy/base/bytes.hpp"
#include "onecopy/formats/index.hpp"

namespace onecopy::executorch {

// By content: "ET" or "FT" and two digits, behind an offset that can be one. `parse` says which digits it knows.
bool is_pte(Bytes file) noexcept;
bool is_ptd(Bytes file) noexcept;

// Of either; the container is "pte" or "ptd". Throws FormatError: another version of the schema, offsets that lead
// astray, segments that overlap or lie outside, layouts that disagree with their segments.
Index parse(Bytes file);

}  // namespace onecopy::executorch
