// error: deleted
#include "onecopy/formats/safetensors.hpp"

std::size_t count(onecopy::Bytes file) {
  std::size_t sum = 0;
#ifdef MUST_NOT_COMPILE
  for (const auto& entry : onecopy::safetensors::parse(file).entries()) sum += entry.length;
#else
  const auto index = onecopy::safetensors::parse(file);
  for (const auto& entry : index.entries()) sum += entry.length;
#endif
  return sum;
}
