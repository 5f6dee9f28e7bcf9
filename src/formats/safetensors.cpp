#include "onecopy/formats/safetensors.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>

#include "formats/checked_size.hpp"
#include "formats/onecopy_metadata.hpp"
#include "formats/wire/json.hpp"
#include "onecopy/base/error.hpp"

namespace onecopy::safetensors {
namespace {

using json::describe;

constexpr std::string_view metadata_key = "__metadata__";

class Parser {
 public:
  Parser(std::vector<char> header, std::uint64_t file_size)
      : file_size_(file_size), reader_({header.data(), header.size()}, parts_.unescaped, length_bytes) {
    parts_.data_offset = length_bytes + header.size();
    parts_.header = std::move(header);  // keeps its address, so references into it stay valid
  }

  Index parse() {
    const auto text = header_text();
    if (text.empty() || text.front() != '{') reject(FormatError::not_this_format, "the header does not begin with '{'");
    if (!json::is_utf8(text)) reject(FormatError::malformed, "the header is not UTF-8");
    reader_.object([this](std::string_view key) {
      if (key == metadata_key)
        read_metadata();
      else
        read_entry(key);
    });
    reader_.end();
    give_shapes();
    reject_gaps_and_overlaps();
    read_our_metadata();
    return Index(std::move(parts_));
  }

 private:
  std::string_view header_text() const noexcept { return {parts_.header.data(), parts_.header.size()}; }
  std::uint64_t data_size() const noexcept { return file_size_ - parts_.data_offset; }

  void read_metadata() {
    if (std::exchange(has_metadata_, true))
      reader_.fail(FormatError::inconsistent, "__metadata__ occurs twice in the header");
    if (reader_.null()) return;
    reader_.object([this](std::string_view key) {
      const auto value = reader_.string();
      if (key == metadata::key) ours_end_ = reader_.position();
      if (!parts_.metadata.emplace(key, value).second)
        reader_.fail(FormatError::inconsistent, "metadata ", describe(key), " occurs twice");
    });
  }

  void read_entry(std::string_view name) {
    Entry entry;
    entry.name = name;
    std::optional<std::pair<std::uint64_t, std::uint64_t>> offsets;
    bool has_dtype = false;
    bool has_shape = false;
    shape_starts_.push_back(parts_.dimensions.size());
    const auto once = [&](bool& seen, std::string_view key) {
      if (std::exchange(seen, true)) reader_.fail(FormatError::inconsistent, describe(name), " has ", key, " twice");
    };
    bool has_offsets = false;
    reader_.object([&](std::string_view key) {
      if (key == "dtype") {
        once(has_dtype, key);
        entry.dtype = read_dtype(name);
      } else if (key == "shape") {
        once(has_shape, key);
        reader_.array([this] { parts_.dimensions.push_back(reader_.integer()); });
      } else if (key == "data_offsets") {
        once(has_offsets, key);
        offsets = read_offsets(name);
      } else {
        reader_.skip();  // the safetensors package ignores what it does not know
      }
    });
    if (!has_dtype || !has_shape || !offsets)
      reject(FormatError::malformed, describe(name) + " lacks dtype, shape or data_offsets");
    place(entry, offsets->first, offsets->second);
    parts_.entries.push_back(entry);
  }

  DType read_dtype(std::string_view name) {
    const auto text = reader_.string();
    const auto dtype = parse_dtype(text);
    if (!dtype) reject(FormatError::unsupported, describe(name) + " has the unknown dtype " + describe(text));
    return *dtype;
  }

  std::pair<std::uint64_t, std::uint64_t> read_offsets(std::string_view name) {
    std::array<std::uint64_t, 2> pair{};
    std::size_t count = 0;
    reader_.array([&] {
      if (count == pair.size())
        reader_.fail(FormatError::malformed, "data_offsets of ", describe(name), " are not two numbers");
      pair.at(count++) = reader_.integer();
    });
    if (count != pair.size())
      reader_.fail(FormatError::malformed, "data_offsets of ", describe(name), " are not two numbers");
    return {pair[0], pair[1]};
  }

  // Offsets count from the data section in the file, and from the file's start in an Entry.
  void place(Entry& entry, std::uint64_t begin, std::uint64_t end) {
    const auto range = [&] {
      return describe(entry.name) + ": bytes [" + std::to_string(begin) + ", " + std::to_string(end) + ")";
    };
    if (begin > end) reject(FormatError::malformed, range() + " end before they begin");
    if (!in_bounds(data_size(), begin, end - begin))
      throw FormatError(FormatError::truncated,
                        concat(range(), ", but the data section has ", data_size(),
                               ": the file is truncated, or its header is wrong"),
                        file_size_);
    const auto shape = std::span(parts_.dimensions).subspan(shape_starts_.back());
    const auto bits = checked_size(shape, onecopy::bits(entry.dtype));
    if (!bits || *bits % 8 != 0 || *bits / 8 != end - begin)
      reject(FormatError::inconsistent, range(), " do not match its dtype ", to_string(entry.dtype), " and shape");
    entry.offset = parts_.data_offset + begin;
    entry.length = end - begin;
  }

  // Only now, because the vector of dimensions moved while it grew.
  void give_shapes() {
    shape_starts_.push_back(parts_.dimensions.size());
    const std::span<const std::uint64_t> all(parts_.dimensions);
    for (std::size_t i = 0; i < parts_.entries.size(); ++i)
      parts_.entries[i].shape = all.subspan(shape_starts_[i], shape_starts_[i + 1] - shape_starts_[i]);
  }

  // Overlaps would let a small file declare huge arrays; holes can hide data that no reader checks.
  void reject_gaps_and_overlaps() const {
    std::vector<const Entry*> order(parts_.entries.size());
    std::ranges::transform(parts_.entries, order.begin(), [](const Entry& entry) { return &entry; });
    const auto place = [](const Entry* entry) { return std::pair(entry->offset, entry->length); };
    if (!std::ranges::is_sorted(order, {}, place)) std::ranges::sort(order, {}, place);
    std::uint64_t end = parts_.data_offset;
    for (const Entry* entry : order) {
      if (entry->offset != end)
        throw FormatError(FormatError::inconsistent,
                          concat(describe(entry->name), " begins at byte ", entry->offset, " of the file, ",
                                 (entry->offset < end ? "inside the previous array" : "after a gap"), " that ends at ",
                                 entry->offset < end ? end : entry->offset),
                          entry->offset);
      end += entry->length;
    }
    if (end != file_size_)
      throw FormatError(FormatError::inconsistent,
                        concat("the arrays end at byte ", end, ", but the file has ", file_size_), end);
  }

  void read_our_metadata() {
    const auto text = parts_.metadata.find(metadata::key);
    if (text == parts_.metadata.end()) return;
    const auto facts = metadata::parse(text->second);
    if (!facts) return;
    parts_.kind = facts->kind;
    parts_.header_check = check_header(facts->header_crc);
    parts_.has_fillers = facts->kind != Kind::arrays || facts->align != 0;
    if (parts_.header_check == HeaderCheck::matched)
      parts_.checksums = metadata::parse_blocks(*facts, {parts_.data_offset, data_size()});
    if (parts_.header_check != HeaderCheck::mismatch) return;
    if (facts->kind != Kind::arrays)
      reject(FormatError::inconsistent,
             "the checksum of the header does not match: the file is damaged, or was rewritten by another tool, which "
             "does not preserve files of "
             "kind '",
             to_string(facts->kind), "'");
    parts_.kind = Kind::foreign;
    parts_.has_fillers = false;
  }

  HeaderCheck check_header(std::string_view digits) const {
    if (digits.empty()) return HeaderCheck::absent;
    std::string first_bytes(length_bytes, '\0');
    const std::uint64_t size = parts_.header.size();
    for (unsigned i = 0; i < length_bytes; ++i) first_bytes[i] = static_cast<char>((size >> (8 * i)) & 0xFFU);
    first_bytes += header_text();
    const std::size_t ours_end = length_bytes + ours_end_;
    if (ours_end < first_bytes.size() && digits.size() == 8) {
      const std::size_t at = metadata::header_crc_before(ours_end);
      if (std::string_view(first_bytes).substr(at, 8) == digits && metadata::header_crc(first_bytes, at) == digits)
        return HeaderCheck::matched;
    }
    return HeaderCheck::mismatch;
  }

  std::uint64_t file_size_;
  Index::Parts parts_;
  json::Reader reader_;
  std::vector<std::size_t> shape_starts_;  // into parts_.dimensions, one for each entry
  std::size_t ours_end_ = 0;               // in the header, where the value of our metadata ends
  bool has_metadata_ = false;
};

}  // namespace

std::uint64_t header_length(Bytes first, std::uint64_t file_size) {
  if (file_size < length_bytes || first.size() < length_bytes)
    throw FormatError(
        FormatError::truncated,
        "a safetensors file begins with 8 bytes of header length, but the file has " + std::to_string(file_size),
        file_size);
  const std::uint64_t length = little_endian(first.first(length_bytes));
  if (length > largest_header)
    throw FormatError(FormatError::not_this_format,
                      concat("the header has ", length, " bytes, more than the maximum of ", largest_header,
                             " (is this a safetensors file?)"),
                      0);
  if (!in_bounds(file_size, length_bytes, length))
    throw FormatError(
        FormatError::truncated,
        concat("the header declares ", length, " bytes, but the file has ", file_size, " (is the file truncated?)"),
        file_size);
  return length;
}

Index parse(std::vector<char> header, std::uint64_t file_size) {
  if (!in_bounds(file_size, length_bytes, header.size()))
    throw FormatError(FormatError::truncated,
                      concat("the header has ", header.size(), " bytes, but the file has ", file_size), file_size);
  return Parser(std::move(header), file_size).parse();
}

Index parse(Bytes file) {
  const auto length = header_length(file, file.size());
  const auto header = file.subspan(length_bytes, length);
  const auto* first = reinterpret_cast<const char*>(header.data());
  return parse(std::vector<char>(first, first + header.size()), file.size());
}

}  // namespace onecopy::safetensors
