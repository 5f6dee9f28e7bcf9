#include <fcntl.h>
#include <unistd.h>

#include <array>

#include "os/os.hpp"

namespace onecopy::os {

std::string read_text(const std::string& path) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::array<char, 8192> text{};
  std::size_t size = 0;
  while (fd && size < text.size()) {
    const ssize_t got = ::read(fd.get(), text.data() + size, text.size() - size);
    if (got <= 0) break;
    size += static_cast<std::size_t>(got);
  }
  return {text.data(), size};
}

}  // namespace onecopy::os
