#include "onecopy/formats/executorch.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <ranges>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/checked_size.hpp"
#include "formats/entry_list.hpp"
#include "formats/signatures.hpp"
#include "formats/wire/cursor.hpp"
#include "formats/wire/flatbuffer.hpp"
#include "formats/wire/json.hpp"
#include "onecopy/base/error.hpp"

namespace onecopy::executorch {
namespace {

using flatbuffer::Table;
using json::describe;

// --- segments: the header behind the identifier, and the list in the FlatBuffer ---

constexpr std::string_view known_program = "ET12";
constexpr std::string_view known_flat_tensor = "FT01";

struct Area {
  std::uint64_t flatbuffer = 0;  // bytes from the start of the file, including the headers
  ByteRange data;                // of all segments
};

constexpr std::string_view program_magic = "eh00";
constexpr std::string_view flat_tensor_magic = "FH01";
constexpr unsigned segment_offset = 0;  // fields of DataSegment
constexpr unsigned segment_size = 1;

// The numbers in a header of ExecuTorch, which are those after its four letters and its length; none: the file has no
// such header. Throws FormatError where there are fewer than `least`. Numbers that an early header lacks are 0.
std::optional<std::array<std::uint64_t, 4>> read_header(Bytes file, std::string_view magic, std::uint64_t least) {
  constexpr std::uint64_t header_at = 8;   // behind the offset of the root and the identifier
  constexpr std::uint64_t head_bytes = 8;  // the letters and the length
  if (!in_bounds(file.size(), header_at, head_bytes)) return std::nullopt;
  Cursor cursor("ExecuTorch", "the header", file, {header_at, file.size() - header_at});
  if (cursor.text(magic.size()) != magic) return std::nullopt;
  const std::uint64_t length = cursor.number(4);
  if (length < head_bytes || length - head_bytes > cursor.left())
    cursor.fail(FormatError::truncated, "the header '", magic, "' declares ", length, " bytes, but the file has ",
                file.size());
  const std::uint64_t count = (length - head_bytes) / 8;
  if (count < least) cursor.fail(FormatError::malformed, "the header '", magic, "' has only ", count, " numbers");
  std::array<std::uint64_t, 4> numbers{};
  for (std::uint64_t i = 0; i < std::min<std::uint64_t>(count, numbers.size()); ++i) numbers.at(i) = cursor.number(8);
  return numbers;
}

// Segments of 0 bytes reach to the end of the file, as early headers have no size.
Area area_of(Bytes file, ByteRange flatbuffer, std::optional<ByteRange> segments) {
  if (!in_bounds(file.size(), flatbuffer.offset, flatbuffer.length))
    reject(FormatError::truncated, "ExecuTorch: the FlatBuffer should have ", flatbuffer.length, " bytes from byte ",
           flatbuffer.offset, " on, but the file ends at byte ", file.size());
  const std::uint64_t end = flatbuffer.offset + flatbuffer.length;
  if (!segments) return {end, {end, 0}};
  const auto [begin, size] = *segments;
  if (!in_bounds(file.size(), begin, size))
    reject(FormatError::truncated, "ExecuTorch: segments of ", size, " bytes should begin at byte ", begin,
           ", but the file has ", file.size());
  if (begin < end)
    reject(FormatError::inconsistent, "ExecuTorch: segments begin at byte ", begin,
           ", inside the FlatBuffer, which ends at ", end);
  return {end, {begin, size != 0 ? size : file.size() - begin}};
}

// Program size, where segments begin, and since 2025 their size. Without segments there is no header.
Area area_of_program(Bytes file) {
  const auto header = read_header(file, program_magic, 2);
  if (!header) return {file.size(), {file.size(), 0}};
  const auto [size, begin, length, unused] = *header;
  return area_of(file, {0, size}, begin != 0 ? std::optional(ByteRange{begin, length}) : std::nullopt);
}

// The start of the FlatBuffer behind the header, its size, the start of the segments, and their size.
Area area_of_flat_tensor(Bytes file) {
  const auto header = read_header(file, flat_tensor_magic, 4);
  if (!header) reject(FormatError::not_this_format, "ExecuTorch: the file has no header 'FH01'");
  const auto [offset, size, begin, length] = *header;
  return area_of(file, {offset, size}, length != 0 ? std::optional(ByteRange{begin, length}) : std::nullopt);
}

class Segments {
 public:
  // Throws FormatError: segments that lie outside the area, or overlap.
  Segments(const flatbuffer::Vector& list, const Area& area) {
    for (std::uint32_t i = 0; i < list.size(); ++i) {
      const auto segment = list.table(i);
      const auto offset = segment.number<std::uint64_t>(segment_offset);
      const auto size = segment.number<std::uint64_t>(segment_size);
      if (!in_bounds(area.data.length, offset, size))
        reject(FormatError::out_of_bounds, "ExecuTorch: segment ", i, " of ", size, " bytes begins at byte ", offset,
               " of the segments, which have only ", area.data.length);
      ranges_.push_back({area.data.offset + offset, size});
    }
    if (const auto pair = overlap_in(ranges_))
      reject(FormatError::inconsistent, "ExecuTorch: segment ", pair->second, " begins inside segment ", pair->first);
    used_.resize(ranges_.size());
  }

  // The bytes of a segment that `user` names; throws FormatError for a number that the file does not have.
  ByteRange use(std::uint32_t i, std::string_view user) {
    if (i >= ranges_.size())
      reject(FormatError::out_of_bounds, "ExecuTorch: ", user, " is in segment ", i, ", but the number of segments is ",
             ranges_.size());
    used_[i] = true;
    return ranges_[i];
  }

  // Segments without a user, as "segment.<i>".
  void add_unused(EntryList& entries) const {
    for (std::size_t i = 0; i < ranges_.size(); ++i)
      if (!used_[i]) entries.add_bytes("segment." + std::to_string(i), ranges_[i]);
  }

 private:
  std::vector<ByteRange> ranges_;
  std::vector<bool> used_;
};

// --- layouts of tensors: a type of PyTorch, extents, and the order of the axes in memory ---

namespace layout_field {
constexpr unsigned type = 0, sizes = 1, order = 2;
}

struct TypeFacts {
  std::string_view name;
  unsigned bits = 0;  // of an element; 0: packed, several in a byte
  std::optional<DType> dtype;
};

// By the numbers of PyTorch's ScalarType, with the names of scalar_type.fbs.
constexpr std::array<TypeFacts, 30> types{{
    {"BYTE", 8, DType::u8},
    {"CHAR", 8, DType::i8},
    {"SHORT", 16, DType::i16},
    {"INT", 32, DType::i32},
    {"LONG", 64, DType::i64},
    {"HALF", 16, DType::f16},
    {"FLOAT", 32, DType::f32},
    {"DOUBLE", 64, DType::f64},
    {"COMPLEXHALF", 32, {}},
    {"COMPLEXFLOAT", 64, DType::c64},
    {"COMPLEXDOUBLE", 128, {}},
    {"BOOL", 8, DType::boolean},
    {"QINT8", 8, {}},
    {"QUINT8", 8, {}},
    {"QINT32", 32, {}},
    {"BFLOAT16", 16, DType::bf16},
    {"QUINT4X2", 0, {}},
    {"QUINT2X4", 0, {}},
    {"BITS1X8", 0, {}},
    {"BITS2X4", 0, {}},
    {"BITS4X2", 0, {}},
    {"BITS8", 8, {}},
    {"BITS16", 16, {}},
    {"FLOAT8E5M2", 8, DType::f8_e5m2},
    {"FLOAT8E4M3FN", 8, DType::f8_e4m3},
    {"FLOAT8E5M2FNUZ", 8, DType::f8_e5m2fnuz},
    {"FLOAT8E4M3FNUZ", 8, DType::f8_e4m3fnuz},
    {"UINT16", 16, DType::u16},
    {"UINT32", 32, DType::u32},
    {"UINT64", 64, DType::u64},
}};
static_assert(types.back().name == "UINT64");

// The axes from the slowest to the fastest.
std::vector<std::size_t> read_order(const Table& table, const std::string& name, std::size_t axes) {
  const auto numbers = table.vector(layout_field::order, 1);
  std::vector<std::size_t> order;
  std::vector<bool> seen(axes);
  for (std::uint32_t i = 0; i < numbers.size(); ++i) {
    const std::size_t axis = numbers.number<std::uint8_t>(i);
    if (axis >= axes || seen[axis])
      reject(FormatError::inconsistent, "ExecuTorch: the order of axes of ", describe(name), " has ", axis,
             (axis >= axes ? ", but there are " + std::to_string(axes) : " twice"));
    seen[axis] = true;
    order.push_back(axis);
  }
  if (order.size() != axes)
    reject(FormatError::inconsistent, "ExecuTorch: ", describe(name), " has ", axes, " axes, but their order has ",
           order.size());
  return order;
}

// If a product overflows, an extent is 0 or the type is unknown, and the stride is never used.
std::vector<std::uint64_t> strides_of(const std::vector<std::size_t>& order, const std::vector<std::uint64_t>& shape) {
  std::vector<std::uint64_t> strides(shape.size());
  std::uint64_t stride = 1;
  // NOLINTNEXTLINE(modernize-loop-convert): clang 14 does not take libstdc++ 12's reversed views
  for (auto axis = order.rbegin(); axis != order.rend(); ++axis) {
    strides[*axis] = stride;
    if (__builtin_mul_overflow(stride, std::max<std::uint64_t>(shape[*axis], 1), &stride)) stride = 0;
  }
  return strides;
}

// The array of `data`, with its layout. Throws FormatError unless each axis occurs once, and type and shape need all of
// the data; the size of types that PyTorch packs, and of unknown types, is not checked.
FoundArray array_of(const Table& layout, std::string name, ByteRange data, EntryList& entries) {
  const auto number = layout.number<std::int8_t>(layout_field::type);
  const bool is_known = number >= 0 && static_cast<std::size_t>(number) < types.size();
  const TypeFacts facts = is_known ? types.at(static_cast<std::size_t>(number)) : TypeFacts{};
  auto shape = layout.vector(layout_field::sizes, sizeof(std::int32_t)).extents<std::int32_t>();
  if (!shape) reject(FormatError::malformed, "ExecuTorch: ", describe(name), " has a negative extent");
  if (facts.bits != 0) {
    const auto bits = checked_size(*shape, facts.bits);
    if (!bits || *bits / 8 != data.length)
      reject(bits ? FormatError::inconsistent : FormatError::out_of_bounds, "ExecuTorch: ", describe(name), " has ",
             data.length, " bytes, but its type and shape need ",
             bits ? std::to_string(*bits / 8) : "more than 2^64 bits");
  }
  FoundArray array;
  if (facts.dtype)
    array.dtype = *facts.dtype;
  else
    array.raw_type = is_known ? facts.name : entries.keep(concat("type ", number));
  const auto order = read_order(layout, name, shape->size());
  if (!std::ranges::is_sorted(order)) array.strides = strides_of(order, *shape);
  array.name = std::move(name);
  array.shape = std::move(*shape);
  array.data = data;
  return array;
}

// --- files ---

using Metadata = std::map<std::string, std::string, std::less<>>;

// Field numbers of program.fbs and flat_tensor.fbs.
namespace program_field {
constexpr unsigned version = 0, plans = 1, constant_buffer = 2, delegate_data = 3, segments = 4, constant_segment = 5,
                   named_data = 7;
}
namespace flat_tensor_field {
constexpr unsigned version = 0, segments = 1, named_data = 2;
}
namespace named_field {
constexpr unsigned key = 0, segment = 1, layout = 2;
}
namespace subsegments_field {
constexpr unsigned segment = 0, offsets = 1;
}
constexpr unsigned plan_name = 0;     // of ExecutionPlan
constexpr unsigned inline_bytes = 0;  // of Buffer and of BackendDelegateInlineData

bool is_version_of(const signatures::Signature& kind, Bytes file) noexcept {
  const auto identifier = flatbuffer::identifier(file);
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  return kind.is_in(file) && identifier.size() == 4 && is_digit(identifier[2]) && is_digit(identifier[3]);
}

void expect_schema(std::string_view known, Bytes file) {
  if (const auto found = flatbuffer::identifier(file); found != known)
    reject(FormatError::unsupported, "ExecuTorch: the schema ", describe(found), " is not supported: expected '", known,
           "'");
}

class ProgramReader {
 public:
  explicit ProgramReader(Bytes file)
      : area_(area_of_program(file)),
        buffer_(file.first(area_.flatbuffer)),
        program_(buffer_.root()),
        segments_(program_.offsets(program_field::segments), area_) {}

  Index read() {
    read_named_data();
    read_constants();
    read_inline(program_field::constant_buffer, "constant.");
    read_inline(program_field::delegate_data, "delegate.");
    segments_.add_unused(entries_);
    return std::move(entries_).finish_at_first("pte", metadata(), area_.data.offset + area_.data.length);
  }

 private:
  void read_named_data() {
    const auto named = program_.offsets(program_field::named_data);
    for (std::uint32_t i = 0; i < named.size(); ++i) {
      const auto data = named.table(i);
      std::string key(data.text(named_field::key));
      const auto range = segments_.use(data.number<std::uint32_t>(named_field::segment), describe(key));
      entries_.add_bytes(std::move(key), range);
    }
  }

  // The first entry belongs to tensors that are not constants, and has no bytes.
  void read_constants() {
    const auto places = program_.table(program_field::constant_segment);
    if (!places) return;
    const auto offsets = places->vector(subsegments_field::offsets, sizeof(std::uint64_t));
    if (offsets.size() == 0) return;
    const auto segment = segments_.use(places->number<std::uint32_t>(subsegments_field::segment), "a constant");
    auto begin = offsets.number<std::uint64_t>(0);
    for (std::uint32_t i = 0; i < offsets.size(); ++i) {
      const std::uint64_t end = i + 1 < offsets.size() ? offsets.number<std::uint64_t>(i + 1) : segment.length;
      const auto name = "constant." + std::to_string(i);
      if (begin > end || !in_bounds(segment.length, begin, end - begin))
        reject(FormatError::out_of_bounds, "ExecuTorch: '", name, "' has bytes [", begin, ", ", end,
               ") of a segment of ", segment.length);
      if (i != 0 || begin != end) entries_.add_bytes(name, {segment.offset + begin, end - begin});
      begin = end;
    }
  }

  // Data in the FlatBuffer itself: constants until 2024, and compiled data of backends unless it was extracted.
  void read_inline(unsigned field, const std::string& prefix) {
    const auto buffers = program_.offsets(field);
    for (std::uint32_t i = 0; i < buffers.size(); ++i) {
      const auto range = buffers.table(i).vector(inline_bytes, 1).range();
      if (range.length != 0) entries_.add_bytes(prefix + std::to_string(i), range);
    }
  }

  Metadata metadata() const {
    std::string methods;
    const auto plans = program_.offsets(program_field::plans);
    for (std::uint32_t i = 0; i < plans.size(); ++i)
      methods += (i == 0 ? "" : ", ") + std::string(plans.table(i).text(plan_name));
    return {{"schema", std::string(known_program)},
            {"version", std::to_string(program_.number<std::uint32_t>(program_field::version))},
            {"methods", methods}};
  }

  Area area_;
  flatbuffer::Buffer buffer_;
  Table program_;
  Segments segments_;
  EntryList entries_;
};

class FlatTensorReader {
 public:
  explicit FlatTensorReader(Bytes file)
      : area_(area_of_flat_tensor(file)),
        buffer_(file.first(area_.flatbuffer)),
        root_(buffer_.root()),
        segments_(root_.offsets(flat_tensor_field::segments), area_) {}

  Index read() {
    const auto named = root_.offsets(flat_tensor_field::named_data);
    for (std::uint32_t i = 0; i < named.size(); ++i) read_named(named.table(i));
    segments_.add_unused(entries_);
    Metadata metadata{{"schema", std::string(known_flat_tensor)},
                      {"version", std::to_string(root_.number<std::uint32_t>(flat_tensor_field::version))}};
    return std::move(entries_).finish_at_first("ptd", std::move(metadata), area_.data.offset + area_.data.length);
  }

 private:
  void read_named(const Table& data) {
    std::string key(data.text(named_field::key));
    const auto range = segments_.use(data.number<std::uint32_t>(named_field::segment), describe(key));
    const auto table = data.table(named_field::layout);
    if (!table) return entries_.add_bytes(std::move(key), range);
    entries_.add(array_of(*table, std::move(key), range, entries_));
  }

  Area area_;
  flatbuffer::Buffer buffer_;
  Table root_;
  Segments segments_;
  EntryList entries_;
};

}  // namespace

bool is_pte(Bytes file) noexcept { return is_version_of(signatures::executorch_program, file); }

bool is_ptd(Bytes file) noexcept { return is_version_of(signatures::executorch_data, file); }

Index parse(Bytes file) {
  if (is_pte(file)) {
    expect_schema(known_program, file);
    return ProgramReader(file).read();
  }
  if (!is_ptd(file))
    reject(FormatError::not_this_format,
           "ExecuTorch: the file does not begin with an offset and the identifier 'ET12' or 'FT01'");
  expect_schema(known_flat_tensor, file);
  return FlatTensorReader(file).read();
}

}  // namespace onecopy::executorch
