// Paints an image larger than one would want on the heap, row by row, in a scratch file: image_rows WIDTH HEIGHT FILE
//
// The image type only looks: a QImage where Qt is there, else a small one of this file. FILE becomes a safetensors file
// of one array "data" of shape [HEIGHT, WIDTH], in place. At most 16 MiB are in memory at any time.
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <span>
#include <string>

#ifdef IMAGE_ROWS_QT
#include <QImage>
#endif

#include "onecopy/arrays/array_file.hpp"
#include "onecopy/scratch/publish.hpp"
#include "onecopy/scratch/scratch.hpp"

namespace {

using onecopy::Scratch;

constexpr std::uint64_t cap = std::uint64_t{16} << 20U;

#ifdef IMAGE_ROWS_QT
// QImage takes the memory as it is: pixels, width, height, bytes per line. The scratch outlives it.
class ImageView {
 public:
  explicit ImageView(Scratch<std::uint8_t>& rows)
      : image_(rows.values().data(), static_cast<int>(rows.columns()), static_cast<int>(rows.rows()),
               static_cast<qsizetype>(rows.columns()), QImage::Format_Grayscale8) {}
  std::span<std::uint8_t> line(std::size_t y) {
    return {image_.scanLine(static_cast<int>(y)), static_cast<std::size_t>(image_.width())};
  }

 private:
  QImage image_;
};
#else
class ImageView {
 public:
  explicit ImageView(Scratch<std::uint8_t>& rows) : rows_(&rows) {}
  std::span<std::uint8_t> line(std::size_t y) { return rows_->row(y); }

 private:
  Scratch<std::uint8_t>* rows_;
};
#endif

void paint(Scratch<std::uint8_t>& rows) {
  ImageView image(rows);
  constexpr std::size_t strip = 256;
  for (std::size_t y = 0; y < rows.rows(); ++y) {
    const auto line = image.line(y);
    for (std::size_t x = 0; x < line.size(); ++x) line[x] = static_cast<std::uint8_t>(x ^ y);
    // Written through memory, so it is reported to the cap: the oldest rows go to the disk while the next strip is
    // painted.
    if ((y + 1) % strip == 0) rows.file().wrote({(y + 1 - strip) * rows.columns(), strip * rows.columns()});
  }
}

int run(std::size_t width, std::size_t height, const std::filesystem::path& path) {
  const onecopy::ArraySpec spec{"data", onecopy::DType::u8, {height, width}};
  const auto folder = path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
  Scratch<std::uint8_t> rows({height, width}, {.folder = folder, .head = onecopy::head_for(spec), .max_resident = cap});
  paint(rows);
  const auto memory = rows.memory();
  std::cout << width << " x " << height
            << ", within the cap: " << (!memory.resident || *memory.resident <= cap + (cap / 4) ? "yes" : "no") << "\n";
  const onecopy::Mapping sealed = rows.seal();
  onecopy::publish(rows.file(), path, spec);
  const auto file = onecopy::ArrayFile::open(path);
  std::uint64_t sum = 0;
  for (const std::byte pixel : file.bytes("data")) sum += std::to_integer<std::uint64_t>(pixel);
  std::cout << "sum " << sum << "\n";
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::cerr << "usage: image_rows WIDTH HEIGHT FILE\n";
    return 2;
  }
  try {
    return run(std::stoul(argv[1]), std::stoul(argv[2]), argv[3]);
  } catch (const std::exception& error) {  // OsError: what, where and why
    std::cerr << error.what() << "\n";
    return 1;
  }
}
