// The bytes by which a file is recognised: one table of all formats, both supported and unsupported ones.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

#include "onecopy/base/bytes.hpp"

namespace onecopy::signatures {

struct Signature {
  std::string_view bytes;
  std::size_t offset = 0;  // in the file

  // `first`: the first bytes of the file, or all of it.
  bool is_in(Bytes first) const noexcept {
    if (!in_bounds(first.size(), offset, bytes.size())) return false;
    return std::string_view(reinterpret_cast<const char*>(first.data()) + offset, bytes.size()) == bytes;
  }
};

// Supported formats. FlatBuffers and zip archives have further conditions after their marks: see the parsers. ONNX has
// no mark, only a probable beginning: onnx::is_onnx.
inline constexpr Signature gguf{"GGUF"};
inline constexpr Signature npy{"\x93NUMPY"};
inline constexpr Signature zip{"PK"};
// Protocol 2 of pickle, and the number 0x1950A86A20F9469CFC6C: torch.save before version 1.6.
inline constexpr Signature legacy_torch{"\x80\x02\x8A\x0A\x6C\xFC\x9C\x46\xF9\x20\x6A\xA8\x50\x19."};
inline constexpr std::size_t identifier_at = 4;  // of FlatBuffers
inline constexpr Signature ort{"ORTM", identifier_at};
inline constexpr Signature executorch_program{"ET", identifier_at};
inline constexpr Signature executorch_data{"FT", identifier_at};

inline constexpr std::array recognised{gguf, npy, zip, legacy_torch, ort, executorch_program, executorch_data};

// A format that is opened by mistake.
struct OtherFormat {
  Signature signature;
  std::string_view name;  // with its article
  std::string_view advice = {};
};

inline constexpr std::string_view never_read = "onecopy never reads pickles, because they can execute code";
inline constexpr std::string_view failed_download = "a failed download often leaves such a file";

inline constexpr std::array other_formats{
    OtherFormat{{"\x89PNG"}, "a PNG image"},
    OtherFormat{{"\xFF\xD8\xFF"}, "a JPEG image"},
    OtherFormat{{{"II*\0", 4}}, "a TIFF image"},
    OtherFormat{{{"MM\0*", 4}}, "a TIFF image"},
    OtherFormat{{"II+"}, "a BigTIFF image"},
    OtherFormat{{"\x89HDF"}, "an HDF5 file"},
    OtherFormat{{"PAR1"}, "a Parquet file"},
    OtherFormat{{"ARROW1"}, "an Arrow file"},
    OtherFormat{{"\x1F\x8B"}, "a gzip file", "decompress it first"},
    OtherFormat{{"\x28\xB5\x2F\xFD"}, "a zstd file", "decompress it first"},
    OtherFormat{{"\x80\x02"}, "a pickle", never_read},
    OtherFormat{{"\x80\x03"}, "a pickle", never_read},
    OtherFormat{{"\x80\x04"}, "a pickle", never_read},
    OtherFormat{{"\x80\x05"}, "a pickle", never_read},
    OtherFormat{
        {"PK\3\4"},
        "a zip archive",
        "neither torch.save nor numpy.savez wrote it; for a program of torch.export (.pt2), save the state_dict"},
    OtherFormat{{"SQLite format 3"}, "an SQLite database"},
    OtherFormat{{"\x7F"
                 "ELF"},
                "a program or library"},
    OtherFormat{{"%PDF"}, "a PDF document"},
    OtherFormat{{"version https://git-lfs"}, "a git-lfs pointer", "'git lfs pull' fetches the file"},
    OtherFormat{{"<!DOCTYPE"}, "an HTML page", failed_download},
    OtherFormat{{"<!doctype"}, "an HTML page", failed_download},
    OtherFormat{{"<html"}, "an HTML page", failed_download},
    OtherFormat{{"<?xml"}, "an XML document", failed_download},
};

}  // namespace onecopy::signatures
