// Reading .npz: a zip archive of .npy files, as numpy.savez writes it.
//
// Stored members can be viewed in place. Deflated members cannot, nor can arrays of Python objects and of structured
// types: they have no entries, and the metadata lists them under "compressed" and "unsupported", joined by ", ";
// members other than .npy files are listed under "others". An archive without an entry is refused. The Index owns its
// names and does not refer to the bytes. Pure functions: any thread.
// https://numpy.org/doc/stable/reference/generated/numpy.savez.html
#pragma once

#include "onecopy/base/bytes.hpp"
#include "onecopy/formats/index.hpp"

namespace onecopy::npz {

// True for a zip archive with a member "<name>.npy"; if its directory cannot be read, decides by its first member.
bool is_npz(Bytes file);

// Throws FormatError.
Index parse(Bytes file);

}  // namespace onecopy::npz
