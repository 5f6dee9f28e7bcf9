// error: deleted
#include <cstdint>

#include "onecopy/scratch/scratch.hpp"

std::size_t columns(onecopy::Scratch<std::uint16_t>& canvas) {
#ifdef MUST_NOT_COMPILE
  return onecopy::Scratch<std::uint16_t>({3, 4}).row(0).size();  // the rows would be freed before they are used
#else
  return canvas.row(0).size();
#endif
}
