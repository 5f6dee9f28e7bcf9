// Any bytes as JSON: refused with a FormatError, or taken, and then what the rows hold is a records file that opens and
// can be read wherever a value is. The first byte chooses what is asked for.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "onecopy/base/error.hpp"
#include "onecopy/files/memory_file_writer.hpp"
#include "onecopy/records/builder.hpp"
#include "onecopy/records/json_import.hpp"
#include "onecopy/records/record_file.hpp"

namespace {

using onecopy::records::Builder;
using onecopy::records::JsonOptions;
using onecopy::records::Node;
using onecopy::records::TypeKind;

std::uint64_t touch(const Node& node, std::uint64_t i);

std::uint64_t touch_items(const Node& node, std::uint64_t i) {
  std::uint64_t sum = 0;
  const auto range = node.range(i);
  for (const Node& child : node.children)
    for (std::uint64_t at = range.begin; at < range.end; ++at) sum += touch(child, at);
  return sum;
}

std::uint64_t touch(const Node& node, std::uint64_t i) {
  if (node.kind == TypeKind::null || node.null(i)) return 1;
  std::uint64_t sum = 0;
  switch (node.kind) {
    case TypeKind::boolean: return node.bits.at(i) ? 2 : 3;
    case TypeKind::integer: return static_cast<std::uint64_t>(node.data.signed_at(i));
    case TypeKind::number:
    case TypeKind::real: return node.real(i) > 0 ? 4 : 5;
    case TypeKind::text:
    case TypeKind::bigint:
      for (const char c : node.text(i)) sum += static_cast<unsigned char>(c);
      return sum;
    case TypeKind::list:
    case TypeKind::map: return touch_items(node, i);
    case TypeKind::record:
      for (const auto field : node.fields(i)) sum += touch(node.children[field], i);
      return sum;
    case TypeKind::choice: {
      const auto [child, at] = node.chosen(i);
      return touch(*child, at);
    }
    default: std::abort();  // JSON has nothing else
  }
}

void read_back(Builder& builder, std::uint64_t size, bool pairs) {
  onecopy::MemoryFileWriter writer("fuzz", size);
  builder.write(writer);
  const auto file = onecopy::records::RecordFile::of(onecopy::ArrayFile::from_descriptor(writer.descriptor(), "fuzz"));
  volatile std::uint64_t sum = 0;
  const Node& rows = file.rows();
  for (std::uint64_t i = 0; i < rows.length; ++i) {
    if (!pairs)
      sum = sum + touch(rows, i);
    else
      sum = sum + touch(rows.children[0], i) + touch(rows.children[1], i);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const unsigned wanted = data[0];
  const auto text = std::as_bytes(std::span(data + 1, size - 1));
  JsonOptions options;
  options.lines = (wanted & 3U) == 1;
  options.pairs = (wanted & 3U) == 2;
  if ((wanted & 3U) == 3) options.path = {"a", "b"};
  Builder builder({.spool = "/nowhere", .container = options.pairs ? "dict" : "list", .metadata = {}});
  std::uint64_t file_size = 0;
  try {
    const std::uint64_t rows = import_json(text, builder.rows(), options);
    if (rows != builder.rows().length()) std::abort();
    file_size = builder.finish();
  } catch (const onecopy::FormatError&) {  // also a dict with a key twice, and rows of too many types
    return 0;
  }
  read_back(builder, file_size, options.pairs);
  return 0;
}
