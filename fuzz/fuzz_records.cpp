// Any bytes as a file of records: refused, or opened, and then every value can be read, taken, looked up and handed to
// Arrow: values, or a FormatError.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "onecopy/base/error.hpp"
#include "onecopy/records/arrow.hpp"
#include "onecopy/records/gathered.hpp"
#include "onecopy/records/hash_index.hpp"
#include "onecopy/records/record_file.hpp"
#include "records/building/build_space.hpp"
#include "records/building/tensor.hpp"

namespace {

using namespace onecopy;           // NOLINT(google-build-using-namespace)
using namespace onecopy::records;  // NOLINT(google-build-using-namespace)

// Of a node that has no buffers the length may be anything, and so may that of a list of such: a small file can be a
// long list of nothing.
constexpr std::uint64_t most_rows = 500;
constexpr std::uint64_t most_items = 100000;

volatile std::uint64_t sink = 0;

void use(std::uint64_t value) { sink = sink + value; }
void use(Bytes bytes) {
  for (const std::byte byte : bytes) use(std::to_integer<std::uint64_t>(byte));
}

// A FormatError is as good as a value.
template <class Act>
void attempt(const Act& act) {
  try {
    act();
  } catch (const FormatError&) {
    use(1);
  }
}

void touch_value(const Node& node, std::uint64_t i) {
  prefetch(node, i);
  prefetch_items(node, i);
  use(node.null(i) ? 1U : 0U);
  switch (node.kind) {
    case TypeKind::boolean: return use(node.bits.at(i) ? 1U : 0U);
    case TypeKind::integer: return use(static_cast<std::uint64_t>(node.data.signed_at(i)));
    case TypeKind::number:
    case TypeKind::real: return use(node.real(i) > 0 ? 1U : 0U);
    case TypeKind::bigint:
    case TypeKind::text:
    case TypeKind::bytes: return use(std::as_bytes(std::span(node.text(i))));
    case TypeKind::record: return use(node.fields(i).size());
    case TypeKind::choice: return use(node.chosen(i).second);
    case TypeKind::list:
    case TypeKind::tuple:
    case TypeKind::map:
    case TypeKind::array: return use(node.range(i).end);
    default: return;
  }
}

std::vector<std::uint64_t> some_places(const Node& node) {
  std::vector<std::uint64_t> places;
  for (std::uint64_t k = 0; k < std::min<std::uint64_t>(node.length, 20); ++k) places.push_back(k * 7 % node.length);
  return places;
}

void take(const Node& node) {
  const auto places = some_places(node);
  std::vector<std::byte> numbers(places.size() * 8);
  if (number_type(node)) take_numbers(node, places, numbers);
  use(numbers);
  if (node.offsets.first == nullptr || node.kind == TypeKind::choice) return;
  std::vector<std::int64_t> offsets(places.size() + 1);
  take_offsets(node, places, offsets);
  const auto count = static_cast<std::uint64_t>(offsets.back());
  if (count > most_items) return;
  const bool plain = node.children.empty();
  std::vector<std::byte> items(count * (node.kind == TypeKind::array ? node.type->item_size : 8));
  if (plain)
    take_items(node, places, items);
  else if (const auto dtype = number_type(node.children[0]))
    take_item_numbers(node, places, std::span(items).first(count * (bits(*dtype) / 8)));
  else
    use(item_places(node, places, count).size());
  use(items);
}

void touch(const Node& node) {
  for (std::uint64_t i = 0; i < std::min(node.length, most_rows); ++i) attempt([&] { touch_value(node, i); });
  attempt([&] { take(node); });
  for (const Node& child : node.children) touch(child);
}

void look_up(const RecordFile& file) {
  const auto index = HashIndex::of(file);
  const Node& keys = file.rows().children[0];
  for (std::uint64_t i = 0; i < std::min(keys.length, most_rows); ++i)
    attempt([&] { use(index.find(Key::of(keys, i)).value_or(0)); });
  attempt([&] { use(index.find(Key::of(std::string_view("absent"))).value_or(0)); });
}

// What Arrow is given is read back through Arrow.
void export_and_import(const RecordFile& file, const Node& rows) {
  ArrowArrayStream stream{};
  export_stream(rows, 0, rows.length, std::make_shared<const RecordFile>(file), stream);
  BuildSpace space("/tmp");
  Column column(space, "rows");
  attempt([&] { use(import_stream(stream, column, [] {})); });
  stream.release(&stream);
}

bool is_small(const Node& node) { return node.length <= most_items && std::ranges::all_of(node.children, is_small); }

void hand_to_arrow(const RecordFile& file) {
  const Node& rows = file.rows();
  if (rows.kind != TypeKind::record || !is_small(rows)) return;
  check(rows);
  export_and_import(file, rows);
  const Gathered some(rows, some_places(rows), file.arrays().mapping()->bytes().size());
  export_and_import(file, some.node());
}

int memory_file() {
  static const int descriptor = ::memfd_create("fuzz", MFD_CLOEXEC);
  if (descriptor < 0) std::abort();
  return descriptor;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const int descriptor = memory_file();
  if (::ftruncate(descriptor, 0) != 0 || ::pwrite(descriptor, data, size, 0) != static_cast<ssize_t>(size))
    std::abort();
  try {
    // A copy of exactly the file: a sanitizer sees every byte behind it.
    const auto file =
        RecordFile::of(ArrayFile::from_descriptor(descriptor, "fuzz", {.length = {}, .mode = Mode::copy}));
    touch(file.rows());
    attempt([&] { look_up(file); });
    attempt([&] { hand_to_arrow(file); });
  } catch (const FormatError&) {
  } catch (const OsError&) {
  }
  return 0;
}
