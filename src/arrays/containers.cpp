#include "arrays/containers.hpp"

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "onecopy/base/error.hpp"
#include "onecopy/formats/executorch.hpp"
#include "onecopy/formats/gguf.hpp"
#include "onecopy/formats/npy.hpp"
#include "onecopy/formats/npz.hpp"
#include "onecopy/formats/onnx.hpp"
#include "onecopy/formats/ort.hpp"
#include "onecopy/formats/safetensors.hpp"
#include "onecopy/formats/torch_zip.hpp"

namespace onecopy {
namespace {

// One read is enough for the header of most models.
constexpr std::size_t first_read = std::size_t{16} << 10U;

struct Format {
  bool (*recognise)(Bytes file);
  Index (*read)(Bytes file);
};

constexpr std::array formats{
    Format{gguf::is_gguf, gguf::parse},
    Format{ort::is_ort, ort::parse},
    Format{executorch::is_pte, executorch::parse},
    Format{executorch::is_ptd, executorch::parse},
    Format{npy::is_npy, npy::parse},
    Format{torch_zip::is_torch_zip, torch_zip::parse},
    Format{npz::is_npz, npz::parse},
    Format{onnx::is_onnx, onnx::index},  // the weakest mark comes last
};

// The ninth byte opens the JSON of a safetensors header; no other format has it there by more than chance.
bool is_safetensors(Bytes first) noexcept {
  return first.size() > safetensors::length_bytes && first[safetensors::length_bytes] == std::byte{'{'};
}

std::string_view text_at(Bytes first, std::size_t offset, std::size_t length) noexcept {
  if (!in_bounds(first.size(), offset, length)) return {};
  return {reinterpret_cast<const char*>(first.data()) + offset, length};
}

// Asked before the mapping is touched: a file that is being rewritten has zeros here, and may be shorter by now.
bool may_be_another_format(Bytes first) noexcept {
  const auto begin = text_at(first, 0, 4);
  const auto identifier = text_at(first, 4, 4);  // of FlatBuffers
  return begin == "GGUF" || begin == "\x93NUM" || begin.starts_with("PK") || begin == "\x80\x02\x8A\x0A" ||
         identifier == "ORTM" || identifier.starts_with("ET") || identifier.starts_with("FT") || onnx::is_onnx(first);
}

// What people open by mistake: what its first bytes say it is, and what would open it.
struct Other {
  std::string_view begin;
  std::string_view what;
};

constexpr std::array others{
    Other{"\x89PNG", "a PNG image (onecopy.images.open)"},
    Other{"\xFF\xD8\xFF", "a JPEG image (onecopy.images.open)"},
    Other{{"II*\0", 4}, "a TIFF image (onecopy.images.open)"},
    Other{{"MM\0*", 4}, "a TIFF image (onecopy.images.open)"},
    Other{"II+", "a BigTIFF image (onecopy.images.open)"},
    Other{"\x89HDF", "an HDF5 file"},
    Other{"PAR1", "a Parquet file (onecopy.records.import_parquet)"},
    Other{"ARROW1", "an Arrow file"},
    Other{"\x1F\x8B", "compressed by gzip"},
    Other{"\x28\xB5\x2F\xFD", "compressed by zstd"},
    Other{"\x80\x04", "a pickle, which is never read: it could execute code"},
    Other{"\x80\x05", "a pickle, which is never read: it could execute code"},
    Other{"SQLite format 3", "an SQLite database"},
    Other{"\x7F"
          "ELF",
          "a program or library"},
    Other{"%PDF", "a PDF document"},
};

// A file whose header would be absurdly long is none of ours: say what it looks like, where that is known.
void refuse_others(Bytes begin) {
  for (const Other& other : others)
    if (text_at(begin, 0, other.begin.size()) == other.begin)
      throw FormatError("no file of arrays, but " + std::string(other.what));
}

// Weights that the integration of ONNX Runtime has packed: told by their end.
constexpr std::string_view packed_mark = "oc-ort-1";

void refuse_packed(const Mapping& mapping) {
  std::array<char, packed_mark.size()> end{};
  const std::uint64_t size = mapping.bytes().size();
  if (size < end.size()) return;
  mapping.read(size - end.size(), std::as_writable_bytes(std::span(end)));
  if (std::string_view(end.data(), end.size()) == packed_mark)
    throw FormatError(
        "weights packed for ONNX Runtime, made by onecopy in its store: no file of arrays, and without checksums; a "
        "session reads them");
}

Index read_safetensors(const Mapping& mapping, Bytes begin) {
  const std::uint64_t size = mapping.bytes().size();
  std::vector<char> header(safetensors::header_length(begin, size));
  const auto all = std::as_writable_bytes(std::span(header));
  const auto known = begin.subspan(safetensors::length_bytes);
  const std::size_t have = std::min(known.size(), all.size());
  std::ranges::copy(known.first(have), all.begin());
  mapping.read(safetensors::length_bytes + have, all.subspan(have));
  return safetensors::parse(std::move(header), size);
}

}  // namespace

Index read_index(const Mapping& mapping) {
  std::array<std::byte, first_read> first;  // NOLINT(cppcoreguidelines-pro-type-member-init): filled at once
  const auto begin = std::span(first).first(std::min<std::uint64_t>(mapping.bytes().size(), first.size()));
  mapping.read(0, begin);
  if (!is_safetensors(begin) && may_be_another_format(begin))
    for (const Format& format : formats)
      if (format.recognise(mapping.bytes())) return format.read(mapping.bytes());
  if (!is_safetensors(begin)) {
    refuse_others(begin);
    refuse_packed(mapping);
  }
  return read_safetensors(mapping, begin);
}

}  // namespace onecopy
