// Reading .npz: a zip archive of .npy files, as numpy.savez writes it.
//
// Members that are stored can be looked at where they lie. Those that are deflated cannot, nor can arrays of Python
// objects and of structured types: they are no entries, and the metadata names them under "compressed" and
// "unsupported", joined by ", "; so are members that are no .npy files, under "others". An archive without one entry is
// refused. https://numpy.org/doc/stable/reference/generated/numpy.savez.html
#pragma once

#include "onecopy/base/bytes.hpp"
#include "onecopy/formats/index.hpp"

namespace onecopy::npz {

// True for a zip archive that has a member "<name>.npy"; false too where its directory cannot be read and its first
// member is none.
bool is_npz(Bytes file);

// Throws FormatError.
Index parse(Bytes file);

}  // namespace onecopy::npz
