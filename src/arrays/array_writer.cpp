#include "onecopy/arrays/array_writer.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "onecopy/base/crc32c.hpp"
#include "onecopy/base/error.hpp"
#include "onecopy/files/atomic_writer.hpp"
#include "onecopy/files/memory_file_writer.hpp"

namespace onecopy {

ArrayWriter::ArrayWriter(const std::filesystem::path& path, Layout layout, WriteOptions options)
    : layout_(std::move(layout)),
      owned_(std::make_unique<AtomicWriter>(path, layout_.file_size(), options)),
      file_(owned_.get()),
      blocks_(layout_.block_count()) {
  begin();
}

ArrayWriter::ArrayWriter(FileWriter& file, Layout layout)
    : layout_(std::move(layout)), file_(&file), blocks_(layout_.block_count()) {
  begin();
}

void ArrayWriter::begin() {
  // Leaves space for the header, whose checksums are known when everything else is written.
  const std::string header = layout_.header(blocks_);
  file_->write(std::as_bytes(std::span(header)));
  if (!layout_.placements().empty()) left_ = layout_.placements().front().length;
  skip_fillers();
}

void ArrayWriter::write(Bytes bytes) {
  while (!bytes.empty()) {
    if (next_ == layout_.placements().size())
      reject(FormatError::inconsistent, "more bytes were written than the arrays contain");
    const auto part = bytes.first(std::min<std::uint64_t>(left_, bytes.size()));
    put(part);
    bytes = bytes.subspan(part.size());
    left_ -= part.size();
    skip_fillers();
  }
}

// Advances to the next array with bytes, and writes the fillers before it.
void ArrayWriter::skip_fillers() {
  constexpr std::array<std::byte, 4096> zeros{};
  const auto placements = layout_.placements();
  while (next_ < placements.size() && (left_ == 0 || !placements[next_].array)) {
    for (; left_ > 0 && !placements[next_].array;) {
      const auto part = Bytes(zeros).first(std::min<std::uint64_t>(left_, zeros.size()));
      put(part);
      left_ -= part.size();
    }
    if (++next_ < placements.size()) left_ = placements[next_].length;
  }
}

void ArrayWriter::put(Bytes bytes) {
  if (!layout_.checksum()) return file_->write(bytes);
  // The CPU's cache still has a small part when it is copied to the page cache after the checksum.
  constexpr std::size_t small = std::size_t{256} << 10U;
  for (; !bytes.empty(); bytes = bytes.subspan(std::min(small, bytes.size()))) {
    const auto part = bytes.first(std::min(small, bytes.size()));
    checksum(part);
    file_->write(part);
  }
}

void ArrayWriter::checksum(Bytes bytes) {
  constexpr std::uint64_t block_size = Layout::checksum_block;
  for (std::uint64_t at = file_->written(); !bytes.empty();) {
    const auto part = bytes.first(std::min<std::uint64_t>(block_size - at % block_size, bytes.size()));
    auto& block = blocks_[at / block_size - layout_.data_offset() / block_size];
    block = crc32c(block, part);
    bytes = bytes.subspan(part.size());
    at += part.size();
  }
}

void ArrayWriter::commit() {
  if (next_ != layout_.placements().size()) {
    const auto& array = layout_.arrays()[layout_.placements()[next_].array.value_or(0)];
    reject(FormatError::inconsistent, "'", array.name, "' lacks its last ", left_, " bytes");
  }
  if (layout_.checksum()) {
    const std::string header = layout_.header(blocks_);
    file_->overwrite(0, std::as_bytes(std::span(header)));
  }
  file_->commit();
}

namespace {

Layout plan(std::span<const NamedArray> arrays, const LayoutOptions& options) {
  std::vector<ArraySpec> specs;
  for (const auto& array : arrays) specs.push_back(array.spec);
  return Layout::plan(std::move(specs), options);
}

void write_all(ArrayWriter& writer, std::span<const NamedArray> arrays) {
  for (const auto& placement : writer.layout().placements()) {
    if (!placement.array) continue;
    const auto bytes = arrays[*placement.array].bytes;
    if (bytes.size() != placement.length)
      reject(FormatError::inconsistent, "'", arrays[*placement.array].spec.name, "' has ", bytes.size(),
             " bytes, but its type and shape need ", placement.length);
    writer.write(bytes);
  }
  writer.commit();
}

}  // namespace

void save(const std::filesystem::path& path, std::span<const NamedArray> arrays, const LayoutOptions& options) {
  ArrayWriter writer(path, plan(arrays, options));
  write_all(writer, arrays);
}

ArrayFile save_to_memory(const std::string& name, std::span<const NamedArray> arrays, const LayoutOptions& options) {
  auto layout = plan(arrays, options);
  MemoryFileWriter memory(name, layout.file_size());
  ArrayWriter writer(memory, std::move(layout));
  write_all(writer, arrays);
  return ArrayFile::from_descriptor(memory.descriptor(), name);
}

}  // namespace onecopy
