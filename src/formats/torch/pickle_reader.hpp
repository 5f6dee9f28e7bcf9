// Reads a pickle without unpickling: a pickle is a program, and this reader executes none of it.
//
// The opcodes that Python's pickler writes in protocols 2 to 5 push values, combine them and name functions to call;
// here a call becomes an inert object that remembers its name. Nothing is imported and nothing runs. A pickle has at
// most `largest` bytes, and its values at most `times` of their size and `most_memory`: those of torch.save need one or
// two times. Opcodes that no torch.save writes (text, extension registries, outside data) are refused by name.
// https://docs.python.org/3/library/pickletools.html
#pragma once

#include <cstdint>
#include <string_view>

#include "formats/torch/pickle_values.hpp"

namespace onecopy::pickle {

inline constexpr std::uint64_t largest = std::uint64_t{256} << 20U;  // bytes
inline constexpr std::uint64_t times = 24;                           // small lists of small numbers need 21
inline constexpr std::uint64_t most_memory = std::uint64_t{512} << 20U;
inline constexpr std::size_t longest_global = 500;  // bytes of a module's name, and of a name in it

struct Pickle {
  Values values;  // refers to the bytes of the pickle
  Id root = Values::none;
};

// `bytes` is exactly the pickle. Throws FormatError.
Pickle read(std::string_view bytes);

}  // namespace onecopy::pickle
