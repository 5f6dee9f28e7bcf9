#include "arrays/detect_format.hpp"

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/signatures.hpp"
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

// The ninth byte opens the JSON of a safetensors header; other formats have it there only by chance.
bool is_safetensors(Bytes first) noexcept {
  return first.size() > safetensors::length_bytes && first[safetensors::length_bytes] == std::byte{'{'};
}

// Decided by bytes that were read, because a mapping of a file that is being rewritten could end before them.
bool may_be_another_format(Bytes first) noexcept {
  return onnx::is_onnx(first) ||
         std::ranges::any_of(signatures::recognised, [first](const auto& signature) { return signature.is_in(first); });
}

// No file of arrays begins with 8 of these: the header length of safetensors would be more than 2^61.
bool is_text(Bytes first) noexcept {
  const auto start = first.first(std::min<std::size_t>(first.size(), 32));
  return start.size() >= 8 && std::ranges::all_of(start, [](std::byte byte) {
           const auto c = std::to_integer<unsigned char>(byte);
           return (c >= 0x20 && c < 0x7F) || c == '\t' || c == '\n' || c == '\r';
         });
}

// The JSON object of an index of shards. A safetensors file has a zero byte in its first eight, the length of the
// header.
bool begins_as_json(Bytes file) noexcept {
  constexpr std::string_view spaces = " \t\n\r\f\v";
  const auto first = file.first(std::min<std::size_t>(file.size(), 64));
  const std::string_view text(reinterpret_cast<const char*>(first.data()), first.size());
  const auto brace = text.find_first_not_of(spaces);
  if (brace == std::string_view::npos || text[brace] != '{' || text.find('\0') != std::string_view::npos) return false;
  const auto next = text.find_first_not_of(spaces, brace + 1);
  return next != std::string_view::npos && (text[next] == '"' || text[next] == '}');
}

// `article`: before the name of what was found, with a space.
[[noreturn]] void refuse(std::string_view article, std::string_view found, std::string_view advice) {
  std::string message = "expected a file of arrays, found " + std::string(article) + std::string(found);
  if (!advice.empty()) message += ": " + std::string(advice);
  throw FormatError(FormatError::not_this_format, message, {}, std::string(found));
}

void refuse_other_formats(Bytes first) {
  for (const auto& other : signatures::other_formats) {
    if (!other.signature.is_in(first)) continue;
    const auto end_of_article = other.name.find(' ') + 1;
    refuse(other.name.substr(0, end_of_article), other.name.substr(end_of_article), other.advice);
  }
  if (is_text(first)) refuse("", "text", "use 'onecopy import' for rows of JSON");
}

void refuse_prepacked(const Mapping& mapping) {
  std::array<char, onnx::prepacked_end.size()> end{};
  const std::uint64_t size = mapping.bytes().size();
  if (size < end.size()) return;
  mapping.read(size - end.size(), std::as_writable_bytes(std::span(end)));
  if (std::string_view(end.data(), end.size()) == onnx::prepacked_end)
    refuse("", "weights that were prepacked for ONNX Runtime",
           "they have no checksums, and only ONNX Runtime sessions can read them");
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

Index read_index(const Mapping& mapping, ShardIndex index) {
  std::array<std::byte, first_read> first;  // NOLINT(cppcoreguidelines-pro-type-member-init): filled at once
  const auto begin = std::span(first).first(std::min<std::uint64_t>(mapping.bytes().size(), first.size()));
  mapping.read(0, begin);
  if (index == ShardIndex::accept && begins_as_json(begin)) return Index({.container = "shard index"});
  if (!is_safetensors(begin) && may_be_another_format(begin))
    for (const Format& format : formats)
      if (format.recognise(mapping.bytes())) return format.read(mapping.bytes());
  if (!is_safetensors(begin)) {
    refuse_other_formats(begin);
    refuse_prepacked(mapping);
  }
  return read_safetensors(mapping, begin);
}

}  // namespace onecopy
