// Opens a model, warms it beside other work, and sums one array: open_model FILE NAME
#include <iostream>
#include <numeric>

#include "onecopy/arrays/array_file.hpp"
#include "onecopy/base/error.hpp"
#include "onecopy/page_cache/warm.hpp"

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: open_model FILE NAME\n";
    return 2;
  }
  try {
    const auto model = onecopy::ArrayFile::open(argv[1]);
    const auto job = onecopy::WarmJob::start(model.mapping());  // runs while the rest of the program starts
    const auto& entry = model.entry(argv[2]);
    const onecopy::Bytes bytes = model.bytes(entry);
    const auto sum = std::accumulate(bytes.begin(), bytes.end(), std::uint64_t{0}, [](auto so_far, std::byte byte) {
      return so_far + std::to_integer<std::uint64_t>(byte);
    });
    std::cout << entry.name << ": " << bytes.size() << " bytes of " << to_string(entry.dtype) << ", sum " << sum
              << "\n";
    std::cout << "warm: " << job.wait().reason << "\n";
  } catch (const std::exception& error) {  // OsError, FormatError: what, where and why
    std::cerr << error.what() << "\n";
    return 1;
  }
  return 0;
}
