// Pages of other sizes than this machine's: rounding to larger ones works everywhere, as multiples of the real one.
#pragma once

#include <cstddef>
#include <vector>

#include "os/os.hpp"

namespace onecopy::testing {

class PretendPages {
 public:
  explicit PretendPages(std::size_t size) { os::pretend_page_size(size); }
  PretendPages(const PretendPages&) = delete;
  PretendPages& operator=(const PretendPages&) = delete;
  ~PretendPages() { os::pretend_page_size(0); }
};

// The usual sizes, from this machine's own.
inline std::vector<std::size_t> possible_pages() {
  std::vector<std::size_t> sizes{4096, 16384, 65536};
  std::erase_if(sizes, [](std::size_t size) { return size < os::page_size(); });
  return sizes;
}

}  // namespace onecopy::testing
