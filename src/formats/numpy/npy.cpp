#include "onecopy/formats/npy.hpp"

#include <utility>
#include <vector>

#include "formats/numpy/npy_array.hpp"
#include "onecopy/base/error.hpp"

namespace onecopy::npy {

Index parse(Bytes file) {
  auto found = read_array(file, {0, file.size()});
  if (!found.reason.empty()) reject(FormatError::unsupported, "npy: the array " + found.reason);
  found.array.name = array_name;
  std::vector<FoundArray> arrays;
  arrays.push_back(std::move(found.array));
  return index_of(std::move(arrays), {}, "npy");
}

}  // namespace onecopy::npy
