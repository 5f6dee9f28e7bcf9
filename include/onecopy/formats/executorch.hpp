// Reading ExecuTorch's programs (.pte) and their data (.ptd): a FlatBuffer with the positions of the segments that
// follow it.
//
// A program names data without a type: entries are bytes (u8). Their names are: keys of named data; "constant.<i>" for
// a constant tensor in its segment, including padding up to the next; "delegate.<i>" for compiled data of a backend
// inside the FlatBuffer; and "segment.<i>" for every other segment, such as compiled data of backends and initial
// values of mutable tensors. In a .ptd file named data can have a layout, and then the entry has its type, shape and,
// where the axes are not in order, strides. Several names may share a segment, as the exporter writes equal bytes once.
// The metadata has "schema", "version" and a program's "methods". The Index owns its names and does not refer to the
// bytes. Pure functions: any thread.
// https://github.com/pytorch/executorch/blob/main/schema/program.fbs ("ET12", extended header "eh00") and
// .../extension/flat_tensor/serialize/flat_tensor.fbs ("FT01", header "FH01", without `tensors`), as of version 1.5.
#pragma once

#include "onecopy/base/bytes.hpp"
#include "onecopy/formats/index.hpp"

namespace onecopy::executorch {

// By content: "ET" or "FT" and two digits, behind a plausible offset. `parse` decides which digits are supported.
bool is_pte(Bytes file) noexcept;
bool is_ptd(Bytes file) noexcept;

// For both; the container is "pte" or "ptd". Throws FormatError: another version of the schema, invalid offsets,
// segments that overlap or lie outside, layouts that disagree with their segments.
Index parse(Bytes file);

}  // namespace onecopy::executorch
